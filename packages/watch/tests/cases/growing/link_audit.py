"""The pages of a company's wiki that link to outdated ones, found by a spider of scrapy.

Thread: https://github.com/scrapy/scrapy/issues/6085, https://github.com/scrapy/scrapy/issues/2077
Looks like: each page takes a tenth of a megabyte, long after it was parsed.
Cause: ten links come from each page, faster than they are followed, and each request holds the page it was found in.
Fix: give the title of the page in `cb_kwargs`, not the response, or let the requests wait on the disk (`JOBDIR`).
"""

import random
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import scrapy
from scrapy.crawler import CrawlerProcess

WORDS = ["process", "of", "a", "release", "begins", "with", "its", "plan", "ends", "when", "every", "team", "signed"]


class Wiki(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        text = " ".join(random.choices(WORDS, k=5_000))
        links = " ".join(f'<a href="/page/{random.getrandbits(40)}">more</a>' for _ in range(10))
        body = f"<html><title>{self.path}</title><p>{text}</p>{links}</html>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class AuditSpider(scrapy.Spider):
    name = "audit"
    custom_settings: ClassVar = {
        "CONCURRENT_REQUESTS_PER_DOMAIN": 2,
        "DOWNLOAD_DELAY": 0.02,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
    }

    def __init__(self, start, pages, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]
        self.pages = pages
        self.parsed = 0
        self.outdated = 0

    def parse(self, response, source=None):
        if self.parsed == self.pages:
            raise scrapy.exceptions.CloseSpider("enough pages")
        self.parsed += 1
        title = response.css("title::text").get()  # <- or here
        if source is not None and title.endswith("7"):
            self.outdated += len(source.css("title::text").get()) > 0
        for link in response.css("a"):  # <- or here
            yield response.follow(link, callback=self.parse, cb_kwargs={"source": response})  # <- here


def main(pages: int) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Wiki)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    process = CrawlerProcess({"LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False})
    crawler = process.create_crawler(AuditSpider)
    process.crawl(crawler, start=f"http://127.0.0.1:{server.server_port}/page/1", pages=pages)
    process.start()
    print(f"{crawler.stats.get_value('response_received_count')} pages, {crawler.spider.outdated} outdated links")
    server.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 507)
