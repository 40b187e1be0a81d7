-- An account's orders in the order they were placed are merged from its orders of each status. An index of that order alone
-- cost every order one more page that no other order touches.
DROP INDEX orders_account;
