-- Small copies of product images, made when somebody first asks for them. No foreign key: the last release deletes images
-- and does not know their copies, which are deleted with the next image.
CREATE TABLE product_thumbnails (
    product_id bigint NOT NULL,
    sha256     bytea  NOT NULL CHECK (octet_length(sha256) = 32), -- of the image
    size       text COLLATE "C" NOT NULL,
    bytes      bytea,                                             -- null: the image cannot be decoded
    CONSTRAINT product_thumbnails_pkey PRIMARY KEY (product_id, sha256, size)
);
ALTER TABLE product_thumbnails ALTER COLUMN bytes SET STORAGE EXTERNAL;
GRANT SELECT, INSERT, DELETE ON product_thumbnails TO ledger_runtime;
