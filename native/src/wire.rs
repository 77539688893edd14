//! Protobuf's wire format, as far as spans need it: attributes under one field number.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

const KEY: u8 = 0x0a;
const VALUE: u8 = 0x12;
const TEXT: u8 = 0x0a;
const NUMBER: u8 = 0x18;

/// Appends a number, seven bits a byte, lowest first.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes a number takes.
fn size(mut value: u64) -> usize {
    let mut bytes: usize = 1;
    while value >= 0x80 {
        bytes = bytes.saturating_add(1);
        value >>= 7;
    }
    bytes
}

/// An attribute: what begins it, and its name or, for several, what their names begin with.
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct Attribute(pub Vec<u8>, pub Vec<u8>);

impl Attribute {
    /// Appends it with a text; `rest` is the end of its name.
    pub fn text(&self, out: &mut Vec<u8>, rest: &[u8], value: &[u8]) {
        let string = size(value.len() as u64).saturating_add(1).saturating_add(value.len());
        self.begin(out, rest, string);
        out.push(TEXT);
        varint(out, value.len() as u64);
        out.extend_from_slice(value);
    }

    /// Appends it with a number.
    pub fn number(&self, out: &mut Vec<u8>, value: u64) {
        self.begin(out, b"", size(value).saturating_add(1));
        out.push(NUMBER);
        varint(out, value);
    }

    fn begin(&self, out: &mut Vec<u8>, rest: &[u8], value: usize) {
        let name = self.1.len().saturating_add(rest.len());
        let inner = [1, size(name as u64), name, 1, size(value as u64), value];
        out.extend_from_slice(&self.0);
        varint(out, inner.into_iter().fold(0, usize::saturating_add) as u64);
        out.push(KEY);
        varint(out, name as u64);
        out.extend_from_slice(&self.1);
        out.extend_from_slice(rest);
        out.push(VALUE);
        varint(out, value as u64);
    }
}
