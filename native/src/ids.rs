//! Runs of ids: sorted numbers of 8 bytes, in the machine's order.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).filter_map(|chunk| Some(u64::from_ne_bytes(chunk.try_into().ok()?)))
}

/// Two sorted runs as one.
pub fn merge(one: &[u8], other: &[u8]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(one.len().saturating_add(other.len()));
    let (mut left, mut right) = (numbers(one).peekable(), numbers(other).peekable());
    while let Some(next) = match (left.peek(), right.peek()) {
        (Some(a), Some(b)) if a <= b => left.next(),
        (_, Some(_)) => right.next(),
        _ => left.next(),
    } {
        merged.extend_from_slice(&next.to_ne_bytes());
    }
    merged
}

/// A bit for the low end of each id, in so many bytes, a power of two.
pub fn marks(ids: &[u8], size: usize) -> Vec<u8> {
    let mut marks = vec![0; size];
    let mask = (size as u64).saturating_mul(8).saturating_sub(1);
    for id in numbers(ids) {
        let at = id & mask;
        if let Some(byte) = usize::try_from(at >> 3).ok().and_then(|place| marks.get_mut(place)) {
            *byte |= 1 << (at & 7);
        }
    }
    marks
}
