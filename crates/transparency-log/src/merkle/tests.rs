#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Leaves of the test vectors by the authors of RFC 6962, and the roots of the first 0 to 8 of them.
const LEAVES: [&[u8]; 8] = [
    b"",
    b"\x00",
    b"\x10",
    b"\x20\x21",
    b"\x30\x31",
    b"\x40\x41\x42\x43",
    b"\x50\x51\x52\x53\x54\x55\x56\x57",
    b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
];
const ROOTS: [&str; 9] = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Root, exactly as RFC 9162, 2.1.1 defines it.
fn naive_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => empty_root(),
        [leaf] => *leaf,
        _ => {
            let k = (0..).map(|n| 1 << n).take_while(|k| *k < leaves.len()).last().unwrap();
            node_hash(&naive_root(&leaves[..k]), &naive_root(&leaves[k..]))
        }
    }
}

/// Inclusion path, exactly as RFC 9162, 2.1.3.1 defines it.
fn naive_path(m: usize, leaves: &[Hash]) -> Vec<Hash> {
    if leaves.len() == 1 {
        return vec![];
    }
    let k = (0..).map(|n| 1 << n).take_while(|k| *k < leaves.len()).last().unwrap();
    let (left, right) = leaves.split_at(k);
    let (mut path, sibling) =
        if m < k { (naive_path(m, left), naive_root(right)) } else { (naive_path(m - k, right), naive_root(left)) };
    path.push(sibling);
    path
}

/// Consistency subproof, exactly as RFC 9162, 2.1.4.1 defines it.
fn naive_subproof(m: usize, leaves: &[Hash], is_old: bool) -> Vec<Hash> {
    if m == leaves.len() {
        return if is_old { vec![] } else { vec![naive_root(leaves)] };
    }
    let k = (0..).map(|n| 1 << n).take_while(|k| *k < leaves.len()).last().unwrap();
    let (left, right) = leaves.split_at(k);
    let (mut proof, sibling) = if m <= k {
        (naive_subproof(m, left, is_old), naive_root(right))
    } else {
        (naive_subproof(m - k, right, false), naive_root(left))
    };
    proof.push(sibling);
    proof
}

fn leaves(count: usize) -> Vec<Hash> {
    (0..count).map(|n| leaf_hash(&n.to_be_bytes())).collect()
}

/// Collects all perfect subtrees of these leaves, as reported by `append_noting`.
fn nodes(leaves: &[Hash]) -> HashMap<Node, Hash> {
    let mut nodes = HashMap::new();
    let mut frontier = Frontier::default();
    for leaf in leaves {
        frontier.append_noting(*leaf, |node, hash| assert_eq!(nodes.insert(node, *hash), None));
    }
    nodes
}

fn reader(nodes: &HashMap<Node, Hash>) -> impl FnMut(Node) -> Result<Hash, MerkleError> {
    |node| Ok(nodes[&node])
}

#[test]
fn roots_match_the_published_vectors() {
    let mut frontier = Frontier::default();
    assert_eq!(hex(&frontier.root()), ROOTS[0]);
    for (leaf, root) in LEAVES.iter().zip(&ROOTS[1..]) {
        frontier.append(leaf_hash(leaf));
        assert_eq!(hex(&frontier.root()), *root);
    }
}

/// Paths from the published test vectors, for trees of 8, 3 and 5 leaves.
#[test]
fn inclusion_paths_match_the_published_vectors() {
    let hashes: Vec<Hash> = LEAVES.iter().map(|leaf| leaf_hash(leaf)).collect();
    let nodes = nodes(&hashes);
    let path = |index, size| inclusion_proof(index, size, reader(&nodes)).unwrap().iter().map(hex).collect::<Vec<_>>();
    assert_eq!(
        path(0, 8),
        [
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ]
    );
    assert_eq!(
        path(5, 8),
        [
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ]
    );
    assert_eq!(path(2, 3), ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]);
    assert_eq!(
        path(1, 5),
        [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ]
    );
}

#[test]
fn every_proof_of_a_small_tree_matches_the_naive_one_and_verifies() {
    let all = leaves(70);
    let nodes = nodes(&all);
    for size in 0..=all.len() {
        let tree = &all[..size];
        let to = size as u64;
        let new_root = naive_root(tree);
        assert_eq!(root(to, reader(&nodes)), Ok(new_root));
        for (index, leaf) in tree.iter().enumerate() {
            let proof = inclusion_proof(index as u64, to, reader(&nodes)).unwrap();
            assert_eq!(proof, naive_path(index, tree));
            verify_inclusion(leaf, index as u64, to, &proof, &new_root).unwrap();
        }
        for from in 0..=size {
            let old_root = naive_root(&all[..from]);
            let proof = consistency_proof(from as u64, to, reader(&nodes)).unwrap();
            if from > 0 {
                assert_eq!(proof, naive_subproof(from, tree, true));
            }
            verify_consistency(from as u64, &old_root, to, &new_root, &proof).unwrap();
        }
    }
}

#[test]
fn a_frontier_resumes_from_its_stored_hashes() {
    let all = leaves(70);
    let nodes = nodes(&all);
    for size in 0..all.len() {
        let peaks = Frontier::nodes(size as u64).into_iter().map(|node| nodes[&node]).collect();
        let mut frontier = Frontier::new(size as u64, peaks).unwrap();
        assert_eq!(frontier.root(), naive_root(&all[..size]));
        frontier.append(all[size]);
        assert_eq!((frontier.size(), frontier.root()), (size as u64 + 1, naive_root(&all[..=size])));
    }
    assert_eq!(Frontier::new(3, vec![[0; 32]]), None);
}

#[test]
fn impossible_and_mismatched_proofs_are_refused() {
    let nodes = nodes(&leaves(3));
    assert_eq!(inclusion_proof(3, 3, reader(&nodes)), Err(MerkleError::NoSuchLeaf { index: 3, size: 3 }));
    assert_eq!(consistency_proof(4, 3, reader(&nodes)), Err(MerkleError::Shrinks { from: 4, to: 3 }));
    let (a, b) = ([1; 32], [2; 32]);
    assert_eq!(verify_consistency(3, &a, 3, &b, &[]), Err(MerkleError::Root));
    assert_eq!(verify_consistency(3, &a, 3, &a, &[b]), Err(MerkleError::Length));
    assert_eq!(verify_consistency(0, &a, 3, &b, &[]), Err(MerkleError::OldRoot));
    assert_eq!(verify_consistency(4, &a, 3, &b, &[]), Err(MerkleError::Shrinks { from: 4, to: 3 }));
    assert_eq!(verify_consistency(2, &a, 3, &b, &[]), Err(MerkleError::Length));
    assert_eq!(verify_inclusion(&a, 0, 0, &[], &b), Err(MerkleError::NoSuchLeaf { index: 0, size: 0 }));
    assert_eq!(
        verify_inclusion(&a, u64::MAX, u64::MAX, &[], &b),
        Err(MerkleError::NoSuchLeaf { index: u64::MAX, size: u64::MAX })
    );
}

/// A small change of a proof.
#[derive(Clone, Debug)]
enum Change {
    Drop(prop::sample::Index),
    Repeat(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Swap(prop::sample::Index, prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        at().prop_map(Change::Drop),
        at().prop_map(Change::Repeat),
        (at(), 0..=255_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (at(), at()).prop_map(|(one, other)| Change::Swap(one, other)),
    ]
}

fn changed(proof: &[Hash], change: &Change) -> Vec<Hash> {
    let mut proof = proof.to_vec();
    match (change, proof.len()) {
        (_, 0) => proof.push([0; 32]),
        (Change::Drop(at), length) => _ = proof.remove(at.index(length)),
        (Change::Repeat(at), length) => proof.insert(at.index(length), proof[at.index(length)]),
        (Change::Flip(at, bit), length) => proof[at.index(length)][usize::from(bit >> 3)] ^= 1 << (bit & 7),
        (Change::Swap(one, other), length) => proof.swap(one.index(length), other.index(length)),
    }
    proof
}

proptest! {
    #[test]
    fn a_changed_proof_proves_nothing(size in 1..600_usize, at in any::<prop::sample::Index>(), change in change()) {
        let all = leaves(size);
        let nodes = nodes(&all);
        let (index, to, new_root) = (at.index(size) as u64, size as u64, naive_root(&all));
        let leaf = all[index as usize];
        let proof = inclusion_proof(index, to, reader(&nodes)).unwrap();
        prop_assert_eq!(&proof, &naive_path(index as usize, &all));
        prop_assert_eq!(verify_inclusion(&leaf, index, to, &proof, &new_root), Ok(()));
        let other = changed(&proof, &change);
        if other != proof {
            prop_assert!(verify_inclusion(&leaf, index, to, &other, &new_root).is_err());
        }
        prop_assert!(verify_inclusion(&leaf, index, to, &proof, &[7; 32]).is_err());
        prop_assert!(verify_inclusion(&[7; 32], index, to, &proof, &new_root).is_err());
        if size > 1 {
            let elsewhere = (index + 1) % to;
            prop_assert!(verify_inclusion(&leaf, elsewhere, to, &proof, &new_root).is_err());
        }

        let from = at.index(size) as u64 + 1;
        let old_root = naive_root(&all[..from as usize]);
        let proof = consistency_proof(from, to, reader(&nodes)).unwrap();
        prop_assert_eq!(&proof, &naive_subproof(from as usize, &all, true));
        prop_assert_eq!(verify_consistency(from, &old_root, to, &new_root, &proof), Ok(()));
        let other = changed(&proof, &change);
        if other != proof {
            prop_assert!(verify_consistency(from, &old_root, to, &new_root, &other).is_err());
        }
        prop_assert!(verify_consistency(from, &[7; 32], to, &new_root, &proof).is_err());
        prop_assert!(verify_consistency(from, &old_root, to, &[7; 32], &proof).is_err());
    }

    #[test]
    fn arbitrary_input_never_panics(
        index in any::<u64>(), size in any::<u64>(), proof in proptest::collection::vec(any::<[u8; 32]>(), 0..70),
        (one, other) in any::<([u8; 32], [u8; 32])>(),
    ) {
        prop_assert!(verify_inclusion(&one, index, size, &proof, &other).is_err());
        prop_assert!(verify_consistency(index, &one, size, &other, &proof).is_err());
    }
}
