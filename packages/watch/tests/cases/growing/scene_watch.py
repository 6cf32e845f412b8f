"""New scenes of a satellite archive, read by pystac, of which those with few clouds are announced.

Thread: https://github.com/stac-utils/pystac-client/issues/842, https://github.com/allenai/rslearn/issues/335
Looks like: scenes that were read and dropped are still there.
Cause: `root=` resolves each item through the catalog, whose cache keeps all that it resolved.
Fix: leave `root=` out, or `item.set_root(None)` after the item is read, or a new catalog for each answer.
"""

import json
import random
import sys
import time

import pystac

BANDS = ["blue", "green", "red", "nir", "swir16", "swir22", "scl", "thumbnail"]


def poll_archive(start, count):
    """The archive's answer: scenes as JSON."""
    scenes = []
    for number in range(start, start + count):
        west, south = random.uniform(-10, 30), random.uniform(36, 60)
        scenes.append(
            {
                "type": "Feature",
                "stac_version": "1.1.0",
                "id": f"S2B_{number:08d}",
                "stac_extensions": [],
                "bbox": [west, south, west + 1, south + 1],
                "geometry": {
                    "type": "Polygon",
                    "coordinates": [
                        [[west, south], [west + 1, south], [west + 1, south + 1], [west, south + 1], [west, south]]
                    ],
                },
                "properties": {
                    "datetime": "2025-06-01T10:20:31Z",
                    "eo:cloud_cover": random.uniform(0, 100),
                    "platform": "sentinel-2b",
                    "gsd": 10,
                    "view:sun_azimuth": random.uniform(0, 360),
                },
                "links": [],
                "assets": {
                    band: {
                        "href": f"https://archive.example/{number}/{band}.tif",
                        "title": f"{band} of {number}",
                        "type": "image/tiff; application=geotiff",
                        "roles": ["data"],
                        "file:size": random.randrange(10**6),
                        "proj:shape": [10980, 10980],
                    }
                    for band in BANDS
                },
            }
        )
    return json.dumps(scenes)


class SceneWatch:
    def __init__(self):
        self.catalog = pystac.Catalog("sentinel", "Scenes over Europe", href="https://archive.example/catalog.json")
        self.announced = 0

    def read(self, answer):
        for scene in json.loads(answer):  # <- or here
            href = f"https://archive.example/{scene['id']}.json"
            item = pystac.Item.from_dict(scene, href=href, root=self.catalog)  # <- here
            if item.properties["eo:cloud_cover"] < 10 and "red" in item.assets:
                self.announced += 1


def main(rounds: int) -> None:
    watch = SceneWatch()
    seen = 0
    for _ in range(rounds):
        watch.read(poll_archive(seen, 60))  # <- or here
        seen += 60
        time.sleep(0.12)
    print(f"{seen} scenes, {watch.announced} announced")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 83)
