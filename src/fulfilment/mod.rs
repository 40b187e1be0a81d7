//! Taking orders up and allocating voucher stock to them.
