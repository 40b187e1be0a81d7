module rewards-ledger.example/client

go 1.19
