-- The operator who requested an approval can withdraw it.
ALTER TABLE approvals
    DROP CONSTRAINT approvals_status_check,
    ADD CONSTRAINT approvals_status_check CHECK (status IN ('PENDING', 'GRANTED', 'REJECTED', 'WITHDRAWN'));
