-- Product images.

-- Of the log: {sha256, content_type, size, updated_at}.
ALTER TABLE products ADD COLUMN image json;

-- The bytes, which stand outside the log: the event names them by their hash. Those of an image
-- that was replaced go when the product gets its next one.
CREATE TABLE product_images (
    product_id bigint      NOT NULL,
    sha256     bytea       NOT NULL CHECK (length(sha256) = 32),
    bytes      bytea       NOT NULL CHECK (length(bytes) BETWEEN 1 AND 2097152),
    stored_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (product_id, sha256)
);
-- They are compressed already.
ALTER TABLE product_images ALTER COLUMN bytes SET STORAGE EXTERNAL;

GRANT SELECT, INSERT, UPDATE, DELETE ON product_images TO ledger_runtime;
