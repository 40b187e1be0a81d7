"""Adapts a reduced document to the generator, in place: prepare.py DOCUMENT"""

import json
import pathlib
import sys


def choose_content(response):
    """Keeps one kind of content: JSON, where there is a choice. The generator knows images only as bytes."""
    content = response.get("content", {})
    if "application/json" in content:
        response["content"] = {"application/json": content["application/json"]}
    elif content:
        response["content"] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


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
    path = pathlib.Path(sys.argv[1])
    document = json.loads(path.read_text(encoding="utf-8"))
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                # The service knows the defaults.
                parameter["schema"].pop("default", None)
            for response in operation["responses"].values():
                choose_content(response)
    open_objects(document["components"]["schemas"])
    path.write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
