//! The Merkle tree of RFC 6962 and RFC 9162 (section 2.1) over SHA-256: roots, appends, and proofs, both created
//! and verified.
//!
//! All functions are pure. The caller passes a function that reads the hashes of perfect subtrees from any
//! storage.

use sha2::{Digest, Sha256};

/// A SHA-256 digest.
pub type Hash = [u8; 32];

/// Maximum number of hashes in a proof for a tree of up to 2^64 leaves (RFC 9162: a path, twice).
pub const MAX_PROOF_HASHES: usize = 128;

/// A perfect subtree: `1 << level` leaves, starting at leaf `index << level`. Level 0 is a single leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub level: u8,
    pub index: u64,
}

/// Reason why a proof cannot be created, or proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MerkleError {
    #[error("leaf {index} is not in a tree of {size} leaves")]
    NoSuchLeaf { index: u64, size: u64 },
    #[error("a tree of {from} leaves cannot grow to one of {to} leaves")]
    Shrinks { from: u64, to: u64 },
    #[error("the proof has the wrong number of hashes")]
    Length,
    #[error("the proof leads to a different root")]
    Root,
    #[error("the proof leads to a different old root")]
    OldRoot,
}

/// Computes the hash of a leaf: SHA-256(0x00 ‖ bytes).
pub fn leaf_hash(bytes: &[u8]) -> Hash {
    Sha256::new_with_prefix([0]).chain_update(bytes).finalize().into()
}

/// Computes the hash of an inner node: SHA-256(0x01 ‖ left ‖ right).
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new_with_prefix([1]).chain_update(left).chain_update(right).finalize().into()
}

/// Returns the root of a tree without leaves: SHA-256 of the empty string.
pub fn empty_root() -> Hash {
    Sha256::digest([]).into()
}

/// Right edge of a tree, sufficient to append leaves and to compute the root. It contains the hashes of the
/// perfect subtrees whose sizes add up to the size of the tree, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    /// Builds the frontier of a tree of this size. Returns `None` if the number of hashes does not fit the size.
    pub fn new(size: u64, peaks: Vec<Hash>) -> Option<Frontier> {
        (size.count_ones() as usize == peaks.len()).then_some(Frontier { size, peaks })
    }

    /// Lists the subtrees whose hashes [`Frontier::new`] expects, in order.
    pub fn nodes(size: u64) -> Vec<Node> {
        let mut start = 0;
        let levels = (0..64_u8).rev().filter(|level| size >> level & 1 == 1);
        levels
            .map(|level| {
                let node = Node { level, index: start >> level };
                start += 1 << level;
                node
            })
            .collect()
    }

    /// Returns the number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the hashes of the perfect subtrees, largest first.
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Appends a leaf by its hash.
    pub fn append(&mut self, leaf: Hash) {
        self.append_noting(leaf, |_, _| {});
    }

    /// Appends a leaf by its hash, and passes every perfect subtree that the leaf completes to `note`, the leaf
    /// itself first.
    pub fn append_noting(&mut self, leaf: Hash, mut note: impl FnMut(Node, &Hash)) {
        let (mut level, mut index, mut hash) = (0, self.size, leaf);
        note(Node { level, index }, &hash);
        while index & 1 == 1
            && let Some(left) = self.peaks.pop()
        {
            hash = node_hash(&left, &hash);
            (level, index) = (level + 1, index >> 1);
            note(Node { level, index }, &hash);
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    /// Computes the root of the tree.
    pub fn root(&self) -> Hash {
        let joined = self.peaks.iter().rev().copied().reduce(|right, left| node_hash(&left, &right));
        joined.unwrap_or_else(empty_root)
    }
}

/// Returns the largest power of two below `n`, at which RFC 6962 splits `n` leaves. `n` must be above 1.
fn split(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}

/// Computes the root of the leaves `start..end`. The range must be one that the splits of RFC 6962 produce.
fn range<E>(start: u64, end: u64, read: &mut impl FnMut(Node) -> Result<Hash, E>) -> Result<Hash, E> {
    let leaves = end - start;
    if leaves.is_power_of_two() {
        let level = leaves.trailing_zeros();
        return read(Node { level: u8::try_from(level).unwrap_or(u8::MAX), index: start >> level });
    }
    let middle = start + split(leaves);
    Ok(node_hash(&range(start, middle, read)?, &range(middle, end, read)?))
}

/// Computes the root of the first `size` leaves. `read` returns the hashes of perfect subtrees.
///
/// # Errors
/// Returns the errors of `read`.
pub fn root<E>(size: u64, mut read: impl FnMut(Node) -> Result<Hash, E>) -> Result<Hash, E> {
    if size == 0 { Ok(empty_root()) } else { range(0, size, &mut read) }
}

/// Creates the inclusion proof of a leaf (RFC 9162, 2.1.3.1), nearest hash first.
///
/// # Errors
/// Fails with [`MerkleError::NoSuchLeaf`], or with an error of `read`.
pub fn inclusion_proof<E: From<MerkleError>>(
    index: u64,
    size: u64,
    mut read: impl FnMut(Node) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    if index >= size {
        return Err(MerkleError::NoSuchLeaf { index, size }.into());
    }
    let (mut start, mut end) = (0, size);
    let mut proof = vec![];
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            proof.push(range(middle, end, &mut read)?);
            end = middle;
        } else {
            proof.push(range(start, middle, &mut read)?);
            start = middle;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// Creates the proof that a tree of `to` leaves begins with the tree of `from` leaves (RFC 9162, 2.1.4.1). The
/// proof is empty if there is nothing to prove: `from` is 0, or both sizes are equal.
///
/// # Errors
/// Fails with [`MerkleError::Shrinks`], or with an error of `read`.
pub fn consistency_proof<E: From<MerkleError>>(
    from: u64,
    to: u64,
    mut read: impl FnMut(Node) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    if from > to {
        return Err(MerkleError::Shrinks { from, to }.into());
    }
    let mut proof = vec![];
    if from == 0 || from == to {
        return Ok(proof);
    }
    let (mut start, mut end) = (0, to);
    // True while the verifier of the old root has this subtree.
    let mut is_old = true;
    while from != end {
        let middle = start + split(end - start);
        if from <= middle {
            proof.push(range(middle, end, &mut read)?);
            end = middle;
        } else {
            proof.push(range(start, middle, &mut read)?);
            start = middle;
            is_old = false;
        }
    }
    if !is_old {
        proof.push(range(start, end, &mut read)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Verifies that a leaf's hash stands at `index` of the tree with this root (RFC 9162, 2.1.3.2).
///
/// # Errors
/// Fails for any other leaf, index, size, root or proof.
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> Result<(), MerkleError> {
    if index >= size {
        return Err(MerkleError::NoSuchLeaf { index, size });
    }
    let (mut at, mut last, mut hash) = (index, size - 1, *leaf);
    for sibling in proof {
        if last == 0 {
            return Err(MerkleError::Length);
        }
        if at & 1 == 1 || at == last {
            hash = node_hash(sibling, &hash);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    match last {
        0 if hash == *root => Ok(()),
        0 => Err(MerkleError::Root),
        _ => Err(MerkleError::Length),
    }
}

/// Verifies that the tree of `to` leaves and `to_root` begins with the tree of `from` leaves and `from_root` (RFC
/// 9162, 2.1.4.2).
///
/// # Errors
/// Fails for any other size, root or proof.
pub fn verify_consistency(from: u64, from_root: &Hash, to: u64, to_root: &Hash, proof: &[Hash]) -> Result<(), MerkleError> {
    if from > to {
        return Err(MerkleError::Shrinks { from, to });
    }
    if from == to || from == 0 {
        return match (proof.is_empty(), from == 0) {
            (false, _) => Err(MerkleError::Length),
            (true, true) if *from_root != empty_root() => Err(MerkleError::OldRoot),
            (true, _) if from == to && from_root != to_root => Err(MerkleError::Root),
            (true, _) => Ok(()),
        };
    }
    let (mut at, mut last) = (from - 1, to - 1);
    let (seed, rest) = if from.is_power_of_two() {
        (*from_root, proof)
    } else {
        let (first, rest) = proof.split_first().ok_or(MerkleError::Length)?;
        (*first, rest)
    };
    let odd = at.trailing_ones();
    (at, last) = (at.checked_shr(odd).unwrap_or(0), last.checked_shr(odd).unwrap_or(0));
    let (mut old, mut new) = (seed, seed);
    for sibling in rest {
        if last == 0 {
            return Err(MerkleError::Length);
        }
        if at & 1 == 1 || at == last {
            old = node_hash(sibling, &old);
            new = node_hash(sibling, &new);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            new = node_hash(&new, sibling);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    match last {
        0 if old != *from_root => Err(MerkleError::OldRoot),
        0 if new != *to_root => Err(MerkleError::Root),
        0 => Ok(()),
        _ => Err(MerkleError::Length),
    }
}

#[cfg(test)]
mod tests;
