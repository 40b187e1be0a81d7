"""Writes the published document as the generator needs it: prepare.py DOCUMENT PREPARED

The library raises errors, signs requests and names its own calls by hand. So the generator sees neither error responses
nor the headers that belong to them.
"""

import json
import pathlib
import sys

# Headers that the library sends by itself, or that only browsers send.
OWN_HEADERS = {"#/components/parameters/X-Request-ID", "#/components/parameters/X-Signature", "#/components/parameters/Origin"}
METHODS = ("get", "put", "post", "delete", "patch")


def is_parameter(parameter):
    return parameter.get("$ref") not in OWN_HEADERS and parameter.get("name") != "If-None-Match"


def reduce_responses(responses):
    """Keeps the successful responses, and of each the first kind of content: JSON, where there is a choice."""
    kept = {status: response for status, response in responses.items() if status.startswith("2")}
    for response in kept.values():
        content = response.get("content", {})
        if "application/json" in content:
            response["content"] = {"application/json": content["application/json"]}
        elif content:
            response["content"] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return kept


def open_objects(schema):
    """Turns objects of any shape into any value: the generator would make a class without fields of each."""
    if isinstance(schema, list):
        for item in schema:
            open_objects(item)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
        if is_object and "properties" not in schema and "additionalProperties" not in schema:
            del schema["type"]
        for value in schema.values():
            open_objects(value)


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    document = json.loads(source.read_text(encoding="utf-8"))
    # The payloads of webhooks are read by hand, because new types of events may be added.
    document.pop("webhooks", None)
    for path in document["paths"].values():
        for method in METHODS:
            if method not in path:
                continue
            operation = path[method]
            operation["parameters"] = [each for each in operation.get("parameters", []) if is_parameter(each)]
            for parameter in operation["parameters"]:
                # The service knows the defaults.
                parameter["schema"].pop("default", None)
            operation["responses"] = reduce_responses(operation["responses"])
    open_objects(document["components"]["schemas"])
    target.write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
