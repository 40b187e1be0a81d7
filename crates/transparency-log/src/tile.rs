//! Tiles of 256 hashes of a Merkle tree (C2SP `tlog-tiles`): their paths, and the hashes of perfect subtrees in
//! them.
//!
//! A partial tile is a prefix of the full tile that it grows into.

use crate::merkle::{Frontier, Hash, Node, node_hash};

/// Number of hashes in a full tile, and of entries in a full bundle.
pub const FULL: u16 = 256;
/// Number of tree levels that a tile spans.
const HEIGHT: u8 = 8;

/// A tile of hashes: the roots of `width` neighbouring subtrees, each of 256 to the power of `level` leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    /// Level, from 0 to 7. Level 0 contains the hashes of the leaves, level 1 the roots of full tiles of level 0,
    /// and so on.
    pub level: u8,
    pub index: u64,
    /// Number of hashes, from 1 to 256 ([`FULL`]).
    pub width: u16,
}

impl Tile {
    /// Highest level of any tile in a tree of up to 2^63 leaves.
    pub const MAX_LEVEL: u8 = 7;

    /// Returns the tile that contains the hash of a perfect subtree, or the hashes to compute it from, in a tree
    /// of this size.
    pub fn holding(node: Node, size: u64) -> Tile {
        let level = node.level / HEIGHT;
        let index = (node.index << (node.level % HEIGHT)) / u64::from(FULL);
        let hashes = size >> (level * HEIGHT);
        let width = hashes.saturating_sub(index * u64::from(FULL)).min(u64::from(FULL));
        Tile { level, index, width: u16::try_from(width).unwrap_or(FULL) }
    }

    /// Iterates over all tiles of a tree of this size, level by level, including partial tiles.
    pub fn all(size: u64) -> impl Iterator<Item = Tile> {
        (0..=Self::MAX_LEVEL).flat_map(move |level| {
            let hashes = size >> (level * HEIGHT);
            let full = hashes / u64::from(FULL);
            let width = u16::try_from(hashes % u64::from(FULL)).unwrap_or_default();
            let partial = (width > 0).then_some(Tile { level, index: full, width });
            (0..full).map(move |index| Tile { level, index, width: FULL }).chain(partial)
        })
    }

    /// Returns the path below the log's prefix, such as `tile/0/x001/234.p/5`.
    pub fn path(&self) -> String {
        format!("tile/{}/{}", self.level, place(self.index, self.width))
    }

    /// Returns the path of the bundle of entries whose hashes a tile of level 0 contains.
    pub fn entries_path(&self) -> String {
        format!("tile/entries/{}", place(self.index, self.width))
    }

    /// Parses the part of [`Tile::path`] after `tile/`.
    pub fn parse(path: &str) -> Option<Tile> {
        let (level, rest) = path.split_once('/')?;
        let level = number(level, 2).and_then(|level| u8::try_from(level).ok()).filter(|level| *level <= Self::MAX_LEVEL)?;
        let (index, width) = parse_place(rest)?;
        Some(Tile { level, index, width })
    }

    /// Parses the part of [`Tile::entries_path`] after `tile/entries/`.
    pub fn parse_entries(place: &str) -> Option<Tile> {
        let (index, width) = parse_place(place)?;
        Some(Tile { level: 0, index, width })
    }

    /// Computes the hash of a perfect subtree from the hashes of the tile that [`Tile::holding`] names. Returns
    /// `None` if the tile has too few hashes.
    pub fn hash(node: Node, hashes: &[Hash]) -> Option<Hash> {
        let below = node.level % HEIGHT;
        let first = usize::try_from((node.index << below) % u64::from(FULL)).ok()?;
        Some(joined(hashes.get(first..first + (1_usize << below))?))
    }
}

/// Computes the root over a row of hashes. The length of the row is a power of two.
fn joined(row: &[Hash]) -> Hash {
    match row {
        [] => Hash::default(),
        [hash] => *hash,
        _ => {
            let (left, right) = row.split_at(row.len() / 2);
            node_hash(&joined(left), &joined(right))
        }
    }
}

/// Right edge of a tree, as its partial tiles. It contains everything needed to append more leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    size: u64,
    /// Hashes of the partial tile of each level, 0 to 255 each.
    rows: [Vec<Hash>; Tile::MAX_LEVEL as usize + 1],
}

impl Edge {
    /// Builds the edge of a tree of this size. Returns `None` if the number of hashes on some level does not fit
    /// the size.
    pub fn new(size: u64, rows: [Vec<Hash>; Tile::MAX_LEVEL as usize + 1]) -> Option<Edge> {
        let fits = |(level, row): (usize, &Vec<Hash>)| row.len() as u64 == (size >> (level * 8)) % u64::from(FULL);
        rows.iter().enumerate().all(fits).then_some(Edge { size, rows })
    }

    /// Returns the number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the hashes of the partial tile of each level, starting at level 0. Some are empty.
    pub fn rows(&self) -> &[Vec<Hash>] {
        &self.rows
    }

    /// Appends a leaf by its hash, and passes each tile that becomes full to `full`.
    pub fn append(&mut self, leaf: Hash, mut full: impl FnMut(Tile, Vec<Hash>)) {
        let mut hash = leaf;
        for (level, row) in (0..).zip(&mut self.rows) {
            row.push(hash);
            if row.len() < usize::from(FULL) {
                break;
            }
            hash = joined(row);
            let index = self.size.checked_shr((u32::from(level) + 1) * 8).unwrap_or_default();
            full(Tile { level, index, width: FULL }, std::mem::take(row));
        }
        self.size += 1;
    }

    /// Computes the root of the tree.
    pub fn root(&self) -> Hash {
        let peak = |node: Node| Tile::hash(node, &self.rows[usize::from(node.level / HEIGHT)]);
        let peaks = Frontier::nodes(self.size).into_iter().filter_map(peak).collect();
        Frontier::new(self.size, peaks).unwrap_or_default().root()
    }
}

/// Formats the index of a tile in groups of three digits, all but the last with an `x`. Adds the width of a
/// partial tile.
fn place(index: u64, width: u16) -> String {
    let mut text = format!("{:03}", index % 1_000);
    let mut rest = index / 1_000;
    while rest > 0 {
        text = format!("x{:03}/{text}", rest % 1_000);
        rest /= 1_000;
    }
    if width < FULL { format!("{text}.p/{width}") } else { text }
}

/// Parses the output of [`place`], and accepts nothing else.
fn parse_place(path: &str) -> Option<(u64, u16)> {
    let (groups, width) = match path.split_once(".p/") {
        Some((groups, width)) => (groups, number(width, 3).filter(|width| (1..u64::from(FULL)).contains(width))?),
        None => (path, u64::from(FULL)),
    };
    let (high, last) = groups.rsplit_once('/').map_or((None, groups), |(high, last)| (Some(high), last));
    let mut index: u64 = 0;
    for group in high.into_iter().flat_map(|high| high.split('/')).map(|group| group.strip_prefix('x')).chain([Some(last)]) {
        let digits = group.filter(|digits| digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        index = index.checked_mul(1_000)?.checked_add(digits.parse().ok()?)?;
    }
    let width = u16::try_from(width).ok()?;
    // Rejects leading groups of zeros, and an index that no tree reaches.
    (index < 1 << 56 && place(index, width) == path).then_some((index, width))
}

/// Parses a number of at most `most` digits, without leading zeros.
fn number(digits: &str, most: usize) -> Option<u64> {
    let is_plain = (1..=most).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'));
    if is_plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::merkle::{Frontier, MerkleError, consistency_proof, inclusion_proof, leaf_hash, root};

    #[test]
    fn paths_match_the_specification() {
        let tile = |level, index, width| Tile { level, index, width };
        assert_eq!(tile(0, 1_234_067, 256).path(), "tile/0/x001/x234/067");
        assert_eq!(tile(1, 0, 17).path(), "tile/1/000.p/17");
        assert_eq!(tile(0, 273, 112).entries_path(), "tile/entries/273.p/112");
        assert_eq!(Tile::parse("0/x001/x234/067"), Some(tile(0, 1_234_067, 256)));
        assert_eq!(Tile::parse_entries("273.p/112"), Some(tile(0, 273, 112)));
        for wrong in [
            "",
            "0",
            "0/",
            "0/0",
            "0/00",
            "0/0000",
            "0/067/",
            "0/x001",
            "0/001/067",
            "0/x000/067",
            "0/x001/x234",
            "00/067",
            "8/000",
            "64/000",
            "-1/000",
            "+1/000",
            "0/+67",
            "0/067.p/0",
            "0/067.p/256",
            "0/067.p/01",
            "0/067.p/",
            "0/067.p/5/",
            "0/067.p/5.p/5",
            "0/x1/067",
            "0/x999/x999/x999/x999/x999/x999/x999/999",
            "0/ 67",
            "entries/000",
            "0/x001//067",
        ] {
            assert_eq!(Tile::parse(wrong), None, "{wrong}");
        }
    }

    /// Example from the specification.
    #[test]
    fn a_tree_of_70000_leaves_has_the_specified_tiles() {
        let mut widths: HashMap<(u8, u16), usize> = HashMap::new();
        Tile::all(70_000).for_each(|tile| *widths.entry((tile.level, tile.width)).or_default() += 1);
        assert_eq!(widths, HashMap::from([((0, 256), 273), ((0, 112), 1), ((1, 256), 1), ((1, 17), 1), ((2, 1), 1)]));
        assert_eq!(Tile::all(256).map(|t| t.path()).collect::<Vec<_>>(), ["tile/0/000", "tile/1/000.p/1"]);
        assert_eq!(Tile::all(0).count(), 0);
    }

    proptest! {
        #[test]
        fn every_path_round_trips(level in 0..=7_u8, index in 0..1_u64 << 56, width in 1..=256_u16) {
            let tile = Tile { level, index, width };
            prop_assert_eq!(Tile::parse(tile.path().strip_prefix("tile/").unwrap()), Some(tile));
            prop_assert_eq!(Tile::parse_entries(tile.entries_path().strip_prefix("tile/entries/").unwrap()), Some(Tile { level: 0, ..tile }));
        }

        #[test]
        fn tiles_yield_the_same_proofs_as_nodes(size in 1..3_000_u64, one in any::<prop::sample::Index>()) {
            let mut nodes = HashMap::new();
            let mut frontier = Frontier::default();
            (0..size).for_each(|n| frontier.append_noting(leaf_hash(&n.to_be_bytes()), |node, hash| _ = nodes.insert(node, *hash)));
            let tiles: HashMap<Tile, Vec<Hash>> = Tile::all(size)
                .map(|tile| {
                    let first = tile.index * 256;
                    let hashes = (first..first + u64::from(tile.width)).map(|index| nodes[&Node { level: tile.level * 8, index }]);
                    (tile, hashes.collect())
                })
                .collect();
            let mut edge = Edge::default();
            let mut full = HashMap::new();
            (0..size).for_each(|n| edge.append(leaf_hash(&n.to_be_bytes()), |tile, hashes| assert_eq!(full.insert(tile, hashes), None)));
            for (tile, hashes) in &tiles {
                let kept = if tile.width == FULL { &full[tile] } else { &edge.rows()[usize::from(tile.level)] };
                prop_assert_eq!(kept, hashes);
            }
            prop_assert_eq!((edge.size(), edge.root()), (size, frontier.root()));
            prop_assert_eq!(Edge::new(size, edge.rows.clone()), Some(edge.clone()));
            prop_assert_eq!(Edge::new(size + 1, edge.rows.clone()), None);
            let from_tiles = |node| Ok::<_, MerkleError>(Tile::hash(node, &tiles[&Tile::holding(node, size)]).unwrap());
            let from_nodes = |node| Ok::<_, MerkleError>(nodes[&node]);
            let index = one.index(size as usize) as u64;
            prop_assert_eq!(root(size, from_tiles), Ok(frontier.root()));
            prop_assert_eq!(inclusion_proof(index, size, from_tiles), inclusion_proof(index, size, from_nodes));
            prop_assert_eq!(consistency_proof(index + 1, size, from_tiles), consistency_proof(index + 1, size, from_nodes));
        }
    }
}
