//! Packed records: arrays of a tag and fields. Which fields there are is told by who uses this.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::msgpack::{Cursor, Value};

const NIL: &[u8] = &[0xc0];

/// What a field holds.
#[derive(Clone, Copy)]
pub enum Kind {
    Text,
    Bytes,
    Number,
    Flag,
    Texts,
    /// A map that is not read here: a plain record has an empty one.
    Empty,
}

/// The fields of a plain record, in order: what each holds, and whether it may be nil.
pub struct Table {
    tag: u64,
    fields: Vec<(Kind, bool)>,
    least: usize,
}

#[derive(Clone, Copy)]
pub struct Field<'a> {
    pub raw: &'a [u8],
    pub value: Value<'a>,
}

/// The fields of one record. One that is not there is nil.
#[derive(Default)]
pub struct Fields<'a>(Vec<Field<'a>>);

impl<'a> Fields<'a> {
    pub fn get(&self, place: usize) -> Field<'a> {
        let nil = Field { raw: NIL, value: Value::Nil };
        self.0.get(place).copied().unwrap_or(nil)
    }

    pub fn number(&self, place: usize) -> Option<u64> {
        match self.get(place).value {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    pub fn text(&self, place: usize) -> Option<&'a [u8]> {
        match self.get(place).value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_set(&self, place: usize) -> bool {
        self.get(place).value == Value::Flag(true)
    }

    /// The pairs of a map of texts: name, value, and both as they are packed.
    pub fn pairs(&self, place: usize) -> Pairs<'a> {
        Pairs(Cursor::new(match self.get(place).value {
            Value::Texts(body) => body,
            _ => &[],
        }))
    }
}

pub struct Pairs<'a>(Cursor<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.0.at();
        Some((self.0.text::<false>()?, self.0.text::<false>()?, self.0.since(start)?))
    }
}

impl Table {
    /// `least`: a plain record has that many fields; what it lacks behind them is nil.
    pub fn new(tag: u64, fields: Vec<(Kind, bool)>, least: usize) -> Self {
        Table { tag, fields, least }
    }

    /// Reads the record that begins at the cursor; None unless it is a plain one of this table.
    ///
    /// `CHECKED`: also whether texts are texts, which need not be asked twice.
    pub fn read<'a, const CHECKED: bool>(
        &self,
        cursor: &mut Cursor<'a>,
        fields: &mut Fields<'a>,
    ) -> Option<()> {
        fields.0.clear();
        let count = usize::try_from(cursor.array()?.checked_sub(1)?).ok()?;
        let is_plain = cursor.value::<false>()? == Value::Number(self.tag)
            && count >= self.least
            && count <= self.fields.len();
        if !is_plain {
            return None;
        }
        for (kind, may_be_nil) in self.fields.iter().take(count) {
            let start = cursor.at();
            let value = cursor.value::<CHECKED>()?;
            let fits = match value {
                Value::Nil => *may_be_nil,
                Value::Text(_) => matches!(kind, Kind::Text),
                Value::Bytes(_) => matches!(kind, Kind::Bytes),
                Value::Number(_) => matches!(kind, Kind::Number),
                Value::Flag(_) => matches!(kind, Kind::Flag),
                Value::Texts(body) => match kind {
                    Kind::Texts => true,
                    Kind::Empty => body.is_empty(),
                    _ => false,
                },
                Value::Other => false,
            };
            if !fits {
                return None;
            }
            fields.0.push(Field { raw: cursor.since(start)?, value });
        }
        Some(())
    }

    /// Where each of `count` records begins and the last one ends, and which of them are not plain.
    ///
    /// None unless the bytes are an array of just so many values.
    pub fn walk(&self, packed: &[u8], count: usize) -> Option<(Vec<u32>, Vec<u32>)> {
        u32::try_from(packed.len()).ok()?;
        let mut cursor = Cursor::new(packed);
        if cursor.array()? != u64::try_from(count).ok()? {
            return None;
        }
        let (mut offsets, mut odd) = (Vec::new(), Vec::new());
        let mut fields = Fields::default();
        for place in 0..count {
            offsets.push(u32::try_from(cursor.at()).ok()?);
            let mut reading = cursor.clone();
            if self.read::<true>(&mut reading, &mut fields).is_some() {
                cursor = reading;
            } else {
                odd.push(u32::try_from(place).ok()?);
                cursor.skip()?;
            }
        }
        offsets.push(u32::try_from(cursor.at()).ok()?);
        cursor.is_at_end().then_some((offsets, odd))
    }
}

/// Packed records, and where each begins and the last one ends: numbers of 4 bytes in the machine's order.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    pub packed: &'a [u8],
    pub offsets: &'a [u8],
}

impl<'a> Block<'a> {
    /// The bytes of the record at a place.
    pub fn record(&self, place: usize) -> Option<&'a [u8]> {
        self.packed.get(self.offset(place)?..self.offset(place.checked_add(1)?)?)
    }

    fn offset(&self, place: usize) -> Option<usize> {
        let at = place.checked_mul(4)?;
        let bytes = self.offsets.get(at..at.checked_add(4)?)?;
        usize::try_from(u32::from_ne_bytes(bytes.try_into().ok()?)).ok()
    }
}
