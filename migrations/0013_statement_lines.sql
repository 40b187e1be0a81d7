-- Lines of banks' statements can be erased: samples of them have no place in the planner's statistics,
-- where that would not find them. Setting the same type again drops those that there are.
ALTER TABLE vault.statement_lines ALTER COLUMN line_fingerprint TYPE bytea, ALTER COLUMN sealed TYPE bytea;
ALTER TABLE vault.statement_lines ALTER COLUMN line_fingerprint SET STATISTICS 0, ALTER COLUMN sealed SET STATISTICS 0;
