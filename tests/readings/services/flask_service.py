"""How a service with Flask reads `id`: by `request.values`, which has query and form; and below `/from` out of one source, or each item of
a list. `python3 flask_service.py PORT`."""

import logging
import sys

from flask import Flask, request
from werkzeug.http import parse_list_header

service = Flask(__name__)
logging.getLogger("werkzeug").disabled = True


def told(found):
    return "-" if found is None else "*" if isinstance(found, (dict, list)) else f"={found}"


def each(found):
    return "\n".join(map(told, found)) or "-"


@service.after_request
def show_key(response):
    response.headers["x-key"] = request.headers.get("fencing-key", "")
    return response


@service.route("/accounts", methods=["GET", "POST", "PUT", "DELETE"])
@service.route("/forms", methods=["POST"])
@service.route("/lists", methods=["GET", "POST", "PUT", "DELETE"])
@service.route("/accounts/<_id>", methods=["GET", "POST", "PUT", "DELETE"])
def read(_id=None):
    return told(request.values.get("id"))


@service.post("/from/path/<found>")
@service.post("/from/action/<found>:cancel")
def path(found):
    return told(found)


@service.post("/from/query")
def query():
    return told(request.args.get("id"))


@service.post("/from/queries")
def queries():
    return each(request.args.getlist("id"))


@service.post("/from/field")
def field():
    return told(request.headers.get("X-Id"))


@service.post("/from/fields")
def fields():
    return each(parse_list_header(request.headers.get("X-Ids", "")))


@service.post("/from/member")
def member():
    return told(request.get_json().get("id"))


@service.post("/from/members")
def members():
    return each(item.get("id") for item in request.get_json()["items"])


service.run("127.0.0.1", int(sys.argv[1]))
