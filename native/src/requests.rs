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
pub struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        if let Some((byte, rest)) = self.0.split_first().filter(|(byte, _)| **byte < 0x80) {
            self.0 = rest;
            return Some(u64::from(*byte));
        }
        let mut value: u64 = 0;
        for shift in (0..70u32).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            if shift == 63 && *byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if *byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The number of the next field and what it holds; None where the bytes are no message.
    pub fn field(&mut self) -> Option<(u64, Item<'a>)> {
        let head = self.varint()?;
        if head > u64::from(u32::MAX) || head < 8 {
            return None;
        }
        let item = match head & 7 {
            0 => Item::Number(self.varint()?),
            1 => Item::Fixed(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
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
    Text(&'a [u8]),
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
    let mut message = Message(data);
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
    let mut message = Message(data);
    while !message.is_at_end() {
        let (1, Item::Bytes(part)) = message.field()? else { return None };
        if are_named {
            value(pair(part)?.1, depth)?;
        } else {
            value(part, depth)?;
        }
    }
    Some(Value::Other)
}

pub fn utf8(text: &[u8]) -> Option<&[u8]> {
    from_utf8(text).is_ok().then_some(text)
}

/// The name and the encoded value of an attribute.
pub fn pair(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut message = Message(data);
    let (1, Item::Bytes(name)) = message.field()? else { return None };
    let (2, Item::Bytes(value)) = message.field()? else { return None };
    message.is_at_end().then_some((utf8(name)?, value))
}

/// Items under one resource and one scope.
pub struct Group<'a> {
    /// The place of its resource in the request.
    pub number: usize,
    pub resource: &'a [u8],
    pub scope: &'a [u8],
    pub items: Vec<&'a [u8]>,
}

/// The items of a request by groups; None if the request is not laid out in the usual way, or has more.
pub fn groups(data: &[u8], most: usize) -> Option<Vec<Group<'_>>> {
    let mut found: Vec<Group<'_>> = Vec::new();
    let mut count: usize = 0;
    for (number, part) in parts(data, 1, false)?.1.into_iter().enumerate() {
        let (resource, scopes) = parts(part, 2, true)?;
        count = count.checked_add(scopes.len())?.checked_add(1)?;
        for part in scopes {
            let (scope, items) = parts(part, 2, true)?;
            count = count.checked_add(items.len())?;
            found.push(Group { number, resource, scope, items });
        }
    }
    (count <= most).then_some(found)
}

/// The head (field 1) of a message and its parts; a message without a head has nothing but parts.
fn parts(data: &[u8], number: u64, has_head: bool) -> Option<(&[u8], Vec<&[u8]>)> {
    let (mut head, mut found) = (None, Vec::new());
    let mut message = Message(data);
    while !message.is_at_end() {
        match message.field()? {
            (at, Item::Bytes(part)) if at == number => found.push(part),
            (1, Item::Bytes(part)) if has_head && head.is_none() => head = Some(part),
            (3, Item::Bytes(part)) if has_head => drop(utf8(part)?),
            _ => return None,
        }
    }
    Some((head.unwrap_or_default(), found))
}

/// A span as it was sent.
#[derive(Default)]
pub struct Span<'a> {
    pub trace_id: &'a [u8],
    pub span_id: &'a [u8],
    pub parent_id: &'a [u8],
    pub name: &'a [u8],
    pub start: u64,
    pub end: u64,
    pub status: u64,
    pub events: Vec<&'a [u8]>,
    pub attributes: Vec<&'a [u8]>,
}

/// Reads a span. None if a field comes twice or is not known: then it is for a parser.
pub fn span(data: &[u8]) -> Option<Span<'_>> {
    let mut span = Span { attributes: Vec::with_capacity(32), ..Default::default() };
    let mut seen: u32 = 0;
    let mut message = Message(data);
    while !message.is_at_end() {
        let (number, item) = message.field()?;
        if !matches!(number, 9 | 11 | 13) {
            let bit = 1u32.checked_shl(u32::try_from(number).ok()?)?;
            if seen & bit != 0 {
                return None;
            }
            seen |= bit;
        }
        match (number, item) {
            (1, Item::Bytes(id)) => span.trace_id = id,
            (2, Item::Bytes(id)) => span.span_id = id,
            (3, Item::Bytes(state)) => drop(utf8(state)?),
            (4, Item::Bytes(id)) => span.parent_id = id,
            (5, Item::Bytes(name)) => span.name = utf8(name)?,
            (6 | 10 | 12 | 14, Item::Number(_)) | (13, Item::Bytes(_)) | (16, Item::Short) => {}
            (7, Item::Fixed(time)) => span.start = time,
            (8, Item::Fixed(time)) => span.end = time,
            (9, Item::Bytes(attribute)) => span.attributes.push(attribute),
            (11, Item::Bytes(event)) => span.events.push(event),
            (15, Item::Bytes(status)) => span.status = code(status)?,
            _ => return None,
        }
    }
    Some(span)
}

/// The name of an event; None if it is not laid out in the usual way.
pub fn event(data: &[u8]) -> Option<&[u8]> {
    let (mut name, mut message) = (None, Message(data));
    while !message.is_at_end() {
        match message.field()? {
            (1, Item::Fixed(_)) | (4, Item::Number(_)) => {}
            (2, Item::Bytes(text)) if name.is_none() => name = Some(utf8(text)?),
            (3, Item::Bytes(attribute)) => drop(value(pair(attribute)?.1, 0)?),
            _ => return None,
        }
    }
    Some(name.unwrap_or_default())
}

fn code(data: &[u8]) -> Option<u64> {
    let (mut found, mut message) = (None, Message(data));
    while !message.is_at_end() {
        match message.field()? {
            (2, Item::Bytes(text)) => drop(utf8(text)?),
            (3, Item::Number(code)) if code < 128 && found.is_none() => found = Some(code),
            _ => return None,
        }
    }
    Some(found.unwrap_or_default())
}
