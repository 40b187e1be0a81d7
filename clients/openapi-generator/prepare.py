"""Prepares openapi/client-v1.json for openapi-generator: `prepare.py DOCUMENT RESULT`.

The libraries' transport does some things once for all operations: it signs, sends idempotency keys, unwraps the reply, pages,
and turns refusals into errors. This program removes those from each operation, and leaves marks that the templates read:

- `x-keyed`: the operation takes an `Idempotency-Key`
- `x-list`: the field of `data` that contains the list
- `x-paged`: the list is paged
- `x-body`: the object is the body of a request, or in one
- `x-bare`: the reply is not wrapped in `data`
- `x-doc`: the description, as wrapped lines
- `x-enum-varnames`: the names of an enum's values
- `x-go-name`: a field's name in Go
"""

import json
import re
import sys
import textwrap

# Schemas that no operation refers to, but that the libraries need.
FURTHER = ["ErrorDetail", "RateLimitError", "WebhookEnvelope", "WebhookLowBalance", "WebhookOrder", "WebhookPayout"]

# Fields that must not appear in logs: secrets, and voucher codes.
SECRETS = {
    "access_token", "api_secret", "card_number", "claim_url", "current_password", "new_password", "otp", "otpauth_url",
    "password", "pin", "recovery_codes", "refresh_token", "secret", "signing_secret", "token",
}  # fmt: skip
SECRET_TEXTS = {("SentMail", "text"), ("WebhookHeader", "value")}

INTEGERS = {"int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
INITIALISMS = {"Api": "API", "Id": "ID", "Ids": "IDs", "Ip": "IP", "Otp": "OTP", "Otpauth": "OTPAuth", "Url": "URL"}


def types(schema):
    kinds = schema.get("type", [])
    return set(kinds if isinstance(kinds, list) else [kinds])


def retyped(schema, kind):
    return [kind, "null"] if "null" in types(schema) else kind


def doc(text):
    """Wraps each paragraph, and each item of a list."""
    lines = []
    for paragraph in re.split(r"\n\n", text.strip()):
        if lines:
            lines.append("")
        for item in re.split(r"\n(?=- )", paragraph):
            lines += textwrap.wrap(item, 110, subsequent_indent="  " if item.startswith("- ") else "", break_on_hyphens=False)
    return lines


def pascal_case(name):
    return "".join(part.capitalize() for part in re.split("[_.]", name))


def go_name(name):
    return "".join(INITIALISMS.get(word, word) for word in (part.capitalize() for part in name.split("_")))


def simplify_field(owner, name, field):
    """Gives a field a type that the generator can express in each language."""
    kinds = types(field)
    is_amount = field.get("format") == "decimal" or re.search(r"\\d\+\\\.\\d\{2\}\$$", field.get("pattern", ""))
    if is_amount and "string" in kinds:
        # A decimal in a string. The generator calls its format "number".
        field.update(type=retyped(field, "string"), format="number")
        for limit in ("minimum", "maximum", "multipleOf", "pattern"):
            field.pop(limit, None)
    elif "integer" in kinds:
        field["format"] = INTEGERS.get(field.get("format"), field.get("format", "int64"))
    elif name in SECRETS or (owner, name) in SECRET_TEXTS:
        (field["items"] if "array" in kinds else field)["format"] = "password"
    elif field.get("format") in ("uri", "uuid"):
        del field["format"]
    if "array" in kinds and field["items"].get("format") == "decimal":
        field["items"] = {"type": "string", "format": "number"}
    if "description" in field:
        field["x-doc"] = doc(field["description"])
    field["x-go-name"] = go_name(name)


def simplify_schemas(schemas):
    # An envelope keeps its data as they are: event types that come later have other data.
    envelope = schemas["WebhookEnvelope"]["properties"]
    envelope["data"] = {"description": "State of the object right after the event."}
    envelope["event_type"] = {"$ref": "#/components/schemas/WebhookEventType", "description": envelope["event_type"]["description"]}
    schemas["EventPage"]["properties"]["events"]["items"] = {"$ref": "#/components/schemas/WebhookEnvelope"}
    for name in ("Delivery", "DeliveryDetail"):
        del schemas[name]["properties"]["payload"]["type"]
    for name, schema in schemas.items():
        if "enum" in schema:
            schema["x-enum-varnames"] = [pascal_case(value.removeprefix("E_")) for value in schema["enum"]]
        schema["x-doc"] = doc(schema.get("description", ""))
        for field, properties in schema.get("properties", {}).items():
            simplify_field(name, field, properties)


def simplify_response(operation, schemas):
    """Keeps the first success in its first format, without the reply around the data."""
    status = min(operation["responses"])
    content = operation["responses"][status].get("content", {})
    kind = next(iter(content), None)
    schema = content.get(kind, {}).get("schema", {})
    reply = schemas.get(schema.get("$ref", "").rsplit("/", 1)[-1], {}).get("properties", {})
    operation["x-bare"] = "data" not in reply
    if "data" in reply:
        data = reply["data"]
        if "properties" in data:
            (operation["x-list"], schema), = data["properties"].items()
            schema = {"type": "array", "items": schema["items"]}
        else:
            schema = {"$ref": data["$ref"]}
    response = {"description": "Success"}
    if kind:
        response["content"] = {kind: {"schema": schema}}
    operation["responses"] = {status: response}


def mark_body(reference, schemas):
    """Marks an object that requests contain, and the objects in it."""
    schema = schemas[reference.rsplit("/", 1)[1]]
    if "properties" not in schema or "x-body" in schema:
        return
    schema["x-body"] = True
    # The required fields first, in the order of the document: constructors take them so.
    required = {name: schema["properties"][name] for name in schema.get("required", [])}
    schema["properties"] = required | schema["properties"]
    for field in schema["properties"].values():
        inner = field.get("$ref") or field.get("items", {}).get("$ref")
        if inner:
            mark_body(inner, schemas)


def simplify_operation(operation, schemas):
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in body:
        mark_body(body["$ref"], schemas)
    parameters = operation.get("parameters", [])
    operation["x-keyed"] = any(parameter.get("name") == "Idempotency-Key" for parameter in parameters)
    parameters = [parameter for parameter in parameters if parameter.get("in") in ("path", "query")]
    operation["parameters"] = parameters
    if any(parameter["name"] == "page" for parameter in parameters):
        operation["x-paged"] = True
    for parameter in parameters:
        schema = parameter["schema"]
        parameter["x-go-name"] = go_name(parameter["name"])
        parameter["x-doc"] = doc(parameter.get("description", ""))
        for limit in ("minimum", "maximum", "pattern", "default"):
            schema.pop(limit, None)
    operation["x-doc"] = doc(f"{operation['summary']}.\n\n{operation.get('description', '')}")
    operation.pop("security", None)
    simplify_response(operation, schemas)


def reachable(document, names):
    """Names of the schemas that the operations or `names` lead to."""
    found, rest = set(), [document["paths"], *({"$ref": f"#/components/schemas/{name}"} for name in names)]
    while rest:
        for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(rest.pop())):
            if name not in found:
                found.add(name)
                rest.append(document["components"]["schemas"][name])
    return found


def main(source, result):
    with open(source, encoding="utf-8") as file:
        document = json.load(file)
    schemas = document["components"]["schemas"]
    for path in document["paths"].values():
        for operation in path.values():
            simplify_operation(operation, schemas)
    simplify_schemas(schemas)
    used = reachable(document, FURTHER)
    document["components"] = {"schemas": {name: schema for name, schema in schemas.items() if name in used}}
    document.pop("webhooks", None)
    document["info"]["description"] = document["info"]["title"]
    with open(result, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
