//! Export requests in protobuf's wire format, as far as items are found in them and read where they lie.
//!
//! Stricter than a parser: what is not laid out in the usual way is None, and somebody else's.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::str::from_utf8;

/// Values within values; deeper ones are not looked at.
const DEEPEST: usize = 20;

/// What a field holds.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    Number(u64),
    Fixed(u64),
    Short,
    Bytes(&'a [u8]),
}

/// The fields of a message, one after the other.
pub struct Message<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Message<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Message { data, at: 0 }
    }

    /// The fields between two places of a message.
    pub fn within(data: &'a [u8], at: usize, end: usize) -> Option<Self> {
        Some(Message { data: data.get(..end)?, at })
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.data.len()
    }

    /// Where the next field begins.
    pub fn at(&self) -> usize {
        self.at
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.data.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let mut value: u64 = 0;
        for shift in (0..70u32).step_by(7) {
            let byte = *self.data.get(self.at)?;
            self.at = self.at.checked_add(1)?;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The number of the next field and what it holds; None where a parser may find something else.
    #[inline]
    pub fn field(&mut self) -> Option<(u64, Item<'a>)> {
        let begin = self.at;
        let head = self.varint()?;
        // a parser refuses a head of more bytes than it needs, from some number on
        if !(8..0x4000).contains(&head) || self.at.checked_sub(begin)? > if head < 0x80 { 1 } else { 2 } {
            return None;
        }
        let item = match head & 7 {
            0 => Item::Number(self.varint()?),
            1 => Item::Fixed(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let begin = self.at;
                let length = usize::try_from(self.varint()?).ok()?;
                // some senders leave room for a length, and write it with four bytes
                if self.at.checked_sub(begin)? > 4 {
                    return None;
                }
                Item::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Item::Short
            }
            _ => return None,
        };
        Some((head >> 3, item))
    }
}

/// A value of an attribute.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    Text(&'a str),
    Flag(bool),
    Number(i64),
    Double(u64),
    /// A list, a map, bytes or nothing: well-formed.
    Other,
}

/// The value in these bytes, all texts in it UTF-8; None if it is not laid out in the usual way.
pub fn value(data: &[u8], depth: usize) -> Option<Value<'_>> {
    if depth > DEEPEST {
        return None;
    }
    let mut message = Message::new(data);
    if message.is_at_end() {
        return Some(Value::Other);
    }
    let found = match message.field()? {
        (1, Item::Bytes(text)) => Value::Text(utf8(text)?),
        (2, Item::Number(flag)) => Value::Flag(flag != 0),
        (3, Item::Number(number)) => Value::Number(number as i64),
        (4, Item::Fixed(bits)) => Value::Double(bits),
        (5, Item::Bytes(list)) => values(list, depth.checked_add(1)?, false)?,
        (6, Item::Bytes(map)) => values(map, depth.checked_add(1)?, true)?,
        (7, Item::Bytes(_)) => Value::Other,
        _ => return None,
    };
    message.is_at_end().then_some(found)
}

fn values(data: &[u8], depth: usize, are_named: bool) -> Option<Value<'_>> {
    let mut message = Message::new(data);
    while !message.is_at_end() {
        let (1, Item::Bytes(part)) = message.field()? else { return None };
        if are_named {
            let (name, part) = pair(part)?;
            utf8(name)?;
            value(part, depth)?;
        } else {
            value(part, depth)?;
        }
    }
    Some(Value::Other)
}

pub fn utf8(text: &[u8]) -> Option<&str> {
    from_utf8(text).ok()
}

/// The name, which is not looked at, and the encoded value of an attribute.
pub fn pair(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut message = Message::new(data);
    let (1, Item::Bytes(name)) = message.field()? else { return None };
    let (2, Item::Bytes(value)) = message.field()? else { return None };
    message.is_at_end().then_some((name, value))
}
