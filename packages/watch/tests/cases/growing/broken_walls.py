"""Walls of bricks that are built for each game and destroyed at its end, in a world that stays.

Thread: https://github.com/openai/gym/issues/980
Looks like: memory climbs with the games, although the world is empty after each, and no Python object grows.
Fix: one `fixtureDef` for all bricks, made once before the first game.
"""

import sys
import time

from Box2D.b2 import fixtureDef, polygonShape, world


def play(field: world) -> None:
    wall = []
    for n in range(100):
        brick = fixtureDef(shape=polygonShape(box=(0.5, 0.25)), friction=0.3)  # <- here
        wall.append(field.CreateStaticBody(position=(n % 10, n // 10), fixtures=brick))
    field.Step(1 / 60, 6, 2)
    for body in wall:
        field.DestroyBody(body)


def main(rounds: int) -> None:
    field = world(gravity=(0, -10))
    for _ in range(rounds):
        for _ in range(60):
            play(field)
        time.sleep(0.06)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
