//! msgpack, read where it lies: what a value is and where it ends. Whatever is not plain is `Other`.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::str::from_utf8;

/// A number beyond it is no signed number of 64 bits.
const LARGEST: u64 = i64::MAX as u64;

/// A map with more names than that is not looked through for doubled ones.
const MOST_NAMES: usize = 64;

/// How a value begins; the lengths are those that the bytes say.
enum Head {
    Nil,
    Flag(bool),
    Number(u64),
    Text(usize),
    Bytes(usize),
    Map(u64),
    Array(u64),
    Other(usize),
}

/// A value as far as readers of records need it. `Texts` is the body of a map of texts, each name once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Nil,
    Flag(bool),
    Number(u64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Texts(&'a [u8]),
    Other,
}

/// A place in some bytes. Every method is None where these end too early.
#[derive(Clone)]
pub struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Cursor { data, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.data.len()
    }

    /// The bytes from a place before this one until here.
    pub fn since(&self, start: usize) -> Option<&'a [u8]> {
        self.data.get(start..self.at)
    }

    /// How many items the array has that begins here.
    pub fn array(&mut self) -> Option<u64> {
        match self.head()? {
            Head::Array(count) => Some(count),
            _ => None,
        }
    }

    /// The text that begins here; `checked`, and it has to be UTF-8.
    #[inline]
    pub fn text<const CHECKED: bool>(&mut self) -> Option<&'a [u8]> {
        let Head::Text(length) = self.head()? else { return None };
        let text = self.take(length)?;
        (!CHECKED || from_utf8(text).is_ok()).then_some(text)
    }

    /// The value that begins here. `CHECKED`: texts have to be UTF-8, and the names of a map different ones.
    #[inline]
    pub fn value<const CHECKED: bool>(&mut self) -> Option<Value<'a>> {
        let start = self.at;
        Some(match self.head()? {
            Head::Nil => Value::Nil,
            Head::Flag(flag) => Value::Flag(flag),
            Head::Number(number) if number <= LARGEST => Value::Number(number),
            Head::Text(length) => match self.take(length)? {
                text if CHECKED && from_utf8(text).is_err() => Value::Other,
                text => Value::Text(text),
            },
            Head::Bytes(length) => Value::Bytes(self.take(length)?),
            Head::Map(count) => {
                let body = self.at;
                if self.texts::<CHECKED>(count).is_some() {
                    return self.since(body).map(Value::Texts);
                }
                self.at = start;
                self.skip()?;
                Value::Other
            }
            Head::Number(_) | Head::Array(_) | Head::Other(_) => {
                self.at = start;
                self.skip()?;
                Value::Other
            }
        })
    }

    /// Moves behind the value that begins here, whatever it holds.
    pub fn skip(&mut self) -> Option<()> {
        let mut left: u64 = 1;
        while left > 0 {
            left = left.checked_sub(1)?;
            match self.head()? {
                Head::Nil | Head::Flag(_) | Head::Number(_) => {}
                Head::Text(length) | Head::Bytes(length) | Head::Other(length) => {
                    self.take(length)?;
                }
                Head::Array(count) => left = left.checked_add(count)?,
                Head::Map(count) => left = left.checked_add(count.checked_mul(2)?)?,
            }
        }
        Some(())
    }

    /// Whether so many pairs of texts follow.
    fn texts<const CHECKED: bool>(&mut self, count: u64) -> Option<()> {
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST_NAMES)?;
        let start = self.clone();
        for place in 0..count {
            let name = self.text::<CHECKED>()?;
            self.text::<CHECKED>()?;
            let mut before = start.clone();
            for _ in 0..if CHECKED { place } else { 0 } {
                if before.text::<false>()? == name {
                    return None;
                }
                before.text::<false>()?;
            }
        }
        Some(())
    }

    #[inline]
    fn head(&mut self) -> Option<Head> {
        let first = *self.data.get(self.at)?;
        self.at = self.at.checked_add(1)?;
        Some(match first {
            0x00..=0x7f => Head::Number(u64::from(first)),
            0x80..=0x8f => Head::Map(u64::from(first & 0x0f)),
            0x90..=0x9f => Head::Array(u64::from(first & 0x0f)),
            0xa0..=0xbf => Head::Text(usize::from(first & 0x1f)),
            0xc0 => Head::Nil,
            0xc1 => return None,
            0xc2 => Head::Flag(false),
            0xc3 => Head::Flag(true),
            0xc4 => Head::Bytes(self.length(1)?),
            0xc5 => Head::Bytes(self.length(2)?),
            0xc6 => Head::Bytes(self.length(4)?),
            0xc7 => Head::Other(self.length(1)?.checked_add(1)?),
            0xc8 => Head::Other(self.length(2)?.checked_add(1)?),
            0xc9 => Head::Other(self.length(4)?.checked_add(1)?),
            0xcc => Head::Number(self.number(1)?),
            0xcd => Head::Number(self.number(2)?),
            0xce => Head::Number(self.number(4)?),
            0xcf => Head::Number(self.number(8)?),
            0xd0 => Head::Other(1),
            0xd1 | 0xd4 => Head::Other(2),
            0xd5 => Head::Other(3),
            0xca | 0xd2 => Head::Other(4),
            0xd6 => Head::Other(5),
            0xcb | 0xd3 => Head::Other(8),
            0xd7 => Head::Other(9),
            0xd8 => Head::Other(17),
            0xd9 => Head::Text(self.length(1)?),
            0xda => Head::Text(self.length(2)?),
            0xdb => Head::Text(self.length(4)?),
            0xdc => Head::Array(self.number(2)?),
            0xdd => Head::Array(self.number(4)?),
            0xde => Head::Map(self.number(2)?),
            0xdf => Head::Map(self.number(4)?),
            0xe0..=0xff => Head::Other(0),
        })
    }

    fn length(&mut self, bytes: usize) -> Option<usize> {
        usize::try_from(self.number(bytes)?).ok()
    }

    fn number(&mut self, bytes: usize) -> Option<u64> {
        let read = self.take(bytes)?;
        Some(read.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    #[inline]
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.data.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }
}
