-- The time by which vouchers expire: it follows the database's clock, but not over a jump.

-- One row. Nodes move it on as long as the clock goes on steadily; over a jump an operator does.
CREATE TABLE trusted_clock (
    is_only    boolean        PRIMARY KEY DEFAULT true CHECK (is_only),
    trusted_at timestamptz(3) NOT NULL
) WITH (fillfactor = 10);
INSERT INTO trusted_clock (trusted_at) VALUES (clock_timestamp());

-- What operators have said: that the database's clock was right.
CREATE TABLE clock_confirmations (
    id             bigint         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trusted_before timestamptz(3) NOT NULL,
    confirmed_at   timestamptz(3) NOT NULL,
    reason         text           NOT NULL CHECK (reason <> '')
);
CREATE TRIGGER clock_confirmations_append_only BEFORE UPDATE OR DELETE ON clock_confirmations
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

GRANT SELECT, UPDATE ON trusted_clock TO ledger_runtime;
GRANT SELECT, INSERT ON clock_confirmations TO ledger_runtime;
