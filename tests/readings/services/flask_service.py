"""How a service with Flask reads `id`: by `request.values`, which has query and form. `python3 flask_service.py PORT`."""

import logging
import sys

from flask import Flask, request

service = Flask(__name__)
logging.getLogger("werkzeug").disabled = True


@service.route("/accounts", methods=["GET", "POST", "PUT", "DELETE"])
@service.route("/forms", methods=["POST"])
@service.route("/lists", methods=["GET", "POST", "PUT", "DELETE"])
@service.route("/accounts/<_id>", methods=["GET", "POST", "PUT", "DELETE"])
def read(_id=None):
    found = request.values.get("id")
    return "-" if found is None else f"={found}"


service.run("127.0.0.1", int(sys.argv[1]))
