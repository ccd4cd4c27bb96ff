"""A collector of OpenTelemetry: decodes what it is sent with the published messages, and prints one line per span."""

import http.server
import json
import threading

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

# Gateway and guard export spans concurrently.
ONE_LINE = threading.Lock()


def plain(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
        for of in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in of.scope_spans:
                for span in scope.spans:
                    told = {
                        "resource": plain(of.resource.attributes),
                        "trace": span.trace_id.hex(),
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "name": span.name,
                        "kind": Span.SpanKind.Name(span.kind),
                        "start": span.start_time_unix_nano,
                        "end": span.end_time_unix_nano,
                        "failed": span.status.code == Status.STATUS_CODE_ERROR,
                        "attributes": plain(span.attributes),
                    }
                    with ONE_LINE:
                        print("span", json.dumps(told), flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print("collects on", server.server_port, flush=True)
server.serve_forever()
