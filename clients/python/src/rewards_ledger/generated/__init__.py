"""Types and calls of the client API, generated from its OpenAPI document by `clients/generate python`."""
