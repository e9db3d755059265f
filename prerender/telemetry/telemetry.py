"""The records and notices of one proxy."""

from prerender.telemetry.config_notices import Notices
from prerender.telemetry.crawler_requests import CrawlerRequests
from prerender.telemetry.records import Channel, RenderRecord, RequestRecord


class Telemetry:
    """The records of requests and renders, the requests of crawlers in batches, and notices."""

    def __init__(self) -> None:
        self.requests: Channel[RequestRecord] = Channel()
        self.crawler_requests = CrawlerRequests(self.requests)
        self.renders: Channel[RenderRecord] = Channel()
        self.notices = Notices()
