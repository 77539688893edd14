//! Walks through the groups of a request, a bounded part at a time. What is found goes to a `Target`.
//!
//! What is laid out in the usual way is decoded, and never otherwise than by a parser. The rest goes to the target as
//! it was sent.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use crate::requests::{pair, utf8, value, Item, Message, Value};

/// What a part of a walk has at most: spans, attributes, bytes. It may exceed them by one field.
const MOST_SPANS: usize = 64;
const MOST_ATTRIBUTES: usize = 1024;
const MOST_BYTES: usize = 64 * 1024;
/// A name that is not kept takes the time of so many further attributes, because the target is asked.
const ASKED: usize = 7;
/// Bytes of a value, apart from a text that is dropped.
const LONGEST: usize = 16 * 1024;
/// How a value that is a text begins.
const TEXT: u8 = 0x0a;
/// Names that are kept, bytes of one and of all, and hashes of names that came once.
const MOST_NAMES: usize = 16 * 1024;
const LONGEST_NAME: usize = 256;
const MOST_NAME_BYTES: usize = 1024 * 1024;
const ONCE: usize = 32 * 1024;

/// How values under a name are read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rule {
    /// Texts, numbers, flags and doubles are decoded; others are nothing.
    Scalar,
    /// Looked at, and left out.
    Dropped,
    /// Not decoded here.
    Encoded,
}

/// What stands under a name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Found<'a> {
    Text(&'a str),
    Number(i64),
    Flag(bool),
    Double(f64),
    /// The whole attribute, as it was sent.
    Encoded(&'a [u8]),
}

/// A span without its attributes and events. Ids are empty, or 16 and 8 bytes long.
#[derive(PartialEq, Debug)]
pub struct Span<'a> {
    pub name: &'a str,
    pub trace_id: &'a [u8],
    pub span_id: &'a [u8],
    pub parent_id: &'a [u8],
    pub start: u64,
    pub end: u64,
    pub status: u64,
}

/// What takes the parts of a request in their order.
pub trait Target {
    /// What stands for a name.
    type Name;
    type Error;

    /// How a name that is not kept is read, and what stands for it.
    fn name(&mut self, name: &str) -> Result<(Rule, Self::Name), Self::Error>;
    /// Adds a value to the next resource or span; whether nothing was there under its name.
    fn add(&mut self, name: &Self::Name, found: Found<'_>) -> Result<bool, Self::Error>;
    /// Adds an event to the next span.
    fn event(&mut self, encoded: &[u8]) -> Result<(), Self::Error>;
    /// Ends a resource. If it is `encoded`, it is for a parser, and what was added to it does not count.
    fn resource(&mut self, encoded: Option<&[u8]>) -> Result<(), Self::Error>;
    /// Begins a group under the last resource.
    fn scope(&mut self, name: &str, version: &str) -> Result<(), Self::Error>;
    fn span(&mut self, span: &Span<'_>) -> Result<(), Self::Error>;
    /// Ends a span that is for a parser: what was added to it does not count.
    fn encoded_span(&mut self, encoded: &[u8]) -> Result<(), Self::Error>;
}

struct Name<N> {
    /// Larger than those of older names.
    number: usize,
    rule: Rule,
    stands: N,
}

/// Names that came more than once. A sender that invents names displaces none.
pub struct Names<N> {
    known: HashMap<Box<[u8]>, Name<N>, RandomState>,
    bytes: usize,
    next: usize,
    once: HashSet<u64>,
}

impl<N> Default for Names<N> {
    fn default() -> Self {
        Names { known: HashMap::default(), bytes: 0, next: 0, once: HashSet::new() }
    }
}

impl<N> Names<N> {
    /// How many are kept, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        (self.known.len(), self.bytes)
    }

    fn note(&mut self, name: &[u8], rule: Rule, stands: N) {
        if name.len() > LONGEST_NAME || !self.came_before(name) {
            return;
        }
        let bytes = self.bytes.saturating_add(name.len());
        if self.known.len() >= MOST_NAMES || bytes > MOST_NAME_BYTES {
            let oldest = self.next.saturating_sub(self.known.len());
            let kept = oldest.saturating_add(self.known.len() / 8).saturating_add(1);
            self.known.retain(|_, name| name.number >= kept);
            self.bytes = self.known.keys().map(|name| name.len()).sum();
        }
        self.bytes = self.bytes.saturating_add(name.len());
        self.known.insert(name.into(), Name { number: self.next, rule, stands });
        self.next = self.next.saturating_add(1);
    }

    fn came_before(&mut self, name: &[u8]) -> bool {
        let hash = self.known.hasher().hash_one(name);
        if self.once.remove(&hash) {
            return true;
        }
        if self.once.len() >= ONCE {
            self.once.clear();
        }
        self.once.insert(hash);
        false
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Resource,
    Scope,
    Span,
}

/// Where something is.
#[derive(Clone, Copy, Default)]
struct Place {
    start: u32,
    end: u32,
}

impl Place {
    /// Of the bytes that were read last.
    fn of(message: &Message<'_>, length: usize) -> Option<Place> {
        let start = u32::try_from(message.at().checked_sub(length)?).ok()?;
        Some(Place { start, end: u32::try_from(message.at()).ok()? })
    }

    fn fields<'a>(&self, data: &'a [u8]) -> Option<Message<'a>> {
        Message::within(data, self.start as usize, self.end as usize)
    }

    fn bytes<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        data.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// The fields of a span that were read so far, by their places.
#[derive(Clone, Copy, Default)]
struct Begun {
    seen: u32,
    name: Place,
    trace_id: Place,
    span_id: Place,
    parent_id: Place,
    start: u64,
    end: u64,
    status: u64,
}

/// A way through a request: resources, scopes and spans in the order in which they are read.
pub struct Walk {
    steps: Vec<(Kind, Place)>,
    next: usize,
    /// Where the next field of a part that was begun is; 0 if none was.
    at: usize,
    begun: Begun,
}

impl Walk {
    /// None if resources, scopes and spans are not laid out in the usual way.
    pub fn new(data: &[u8]) -> Option<Walk> {
        u32::try_from(data.len()).ok()?;
        let mut steps = Vec::new();
        let mut request = Message::new(data);
        while !request.is_at_end() {
            let (1, Item::Bytes(group)) = request.field()? else { return None };
            let fields = Place::of(&request, group.len())?;
            parts(data, fields, Kind::Resource, &mut steps)?;
        }
        Some(Walk { steps, next: 0, at: 0, begun: Begun::default() })
    }

    /// How many resources, scopes and spans there are.
    pub fn items(&self) -> usize {
        self.steps.len()
    }

    /// Walks on for a bounded part; whether something was left. `data` is that of the beginning.
    pub fn take<T: Target>(
        &mut self,
        data: &[u8],
        names: &mut Names<T::Name>,
        target: &mut T,
    ) -> Result<bool, T::Error> {
        let mut rest = Rest { spans: MOST_SPANS, attributes: MOST_ATTRIBUTES, bytes: MOST_BYTES };
        let is_left = self.next < self.steps.len();
        while let Some((kind, place)) = self.steps.get(self.next).copied() {
            if rest.is_used_up() {
                break;
            }
            let ended = match kind {
                Kind::Scope => {
                    let (name, version) = scope(data, place).unwrap_or_default();
                    target.scope(name, version)?;
                    End::Whole
                }
                Kind::Resource | Kind::Span => self.part(data, kind, place, names, target, &mut rest)?,
            };
            match (ended, kind) {
                (End::Paused, _) => break,
                (End::Whole, Kind::Resource) => target.resource(None)?,
                (End::Encoded, Kind::Resource) => target.resource(Some(place.bytes(data)))?,
                (End::Whole, Kind::Span) => match self.begun.span(data) {
                    Some(span) => target.span(&span)?,
                    None => target.encoded_span(place.bytes(data))?,
                },
                (End::Encoded, Kind::Span) => target.encoded_span(place.bytes(data))?,
                (_, Kind::Scope) => {}
            }
            rest.spans = rest.spans.saturating_sub(1);
            self.next = self.next.saturating_add(1);
            (self.at, self.begun) = (0, Begun::default());
        }
        Ok(is_left)
    }

    /// Reads on in a resource or a span.
    fn part<T: Target>(
        &mut self,
        data: &[u8],
        kind: Kind,
        place: Place,
        names: &mut Names<T::Name>,
        target: &mut T,
        rest: &mut Rest,
    ) -> Result<End, T::Error> {
        let at = self.at.max(place.start as usize);
        let Some(mut message) = Message::within(data, at, place.end as usize) else {
            return Ok(End::Encoded);
        };
        while !message.is_at_end() {
            let begin = message.at();
            if rest.is_used_up() {
                self.at = begin;
                return Ok(End::Paused);
            }
            let is_usual = match (kind, message.field()) {
                (Kind::Span, Some((9, Item::Bytes(raw)))) | (Kind::Resource, Some((1, Item::Bytes(raw)))) => {
                    attribute(raw, names, target, rest)?
                }
                (Kind::Resource, Some((2, Item::Number(_)) | (3, Item::Bytes(_)))) => true,
                (Kind::Span, Some((11, Item::Bytes(raw)))) => {
                    target.event(raw)?;
                    true
                }
                (Kind::Span, Some((number, item))) => self.begun.field(number, item, &message).is_some(),
                _ => false,
            };
            if !is_usual {
                return Ok(End::Encoded);
            }
            rest.bytes = rest.bytes.saturating_sub(message.at().saturating_sub(begin));
        }
        Ok(End::Whole)
    }
}

/// How a part ended, or did not yet.
enum End {
    Whole,
    Encoded,
    Paused,
}

/// What a part of a walk may still have.
struct Rest {
    spans: usize,
    attributes: usize,
    bytes: usize,
}

impl Rest {
    fn is_used_up(&self) -> bool {
        self.spans == 0 || self.attributes == 0 || self.bytes == 0
    }
}

impl Begun {
    /// Takes a field; None if it comes twice or is not known.
    fn field(&mut self, number: u64, item: Item<'_>, message: &Message<'_>) -> Option<()> {
        let bit = 1u32.checked_shl(u32::try_from(number).ok()?)?;
        if number != 13 && self.seen & bit != 0 {
            return None;
        }
        self.seen |= bit;
        match (number, item) {
            (1, Item::Bytes(id)) if matches!(id.len(), 0 | 16) => {
                self.trace_id = Place::of(message, id.len())?
            }
            (2, Item::Bytes(id)) if matches!(id.len(), 0 | 8) => self.span_id = Place::of(message, id.len())?,
            (4, Item::Bytes(id)) if matches!(id.len(), 0 | 8) => {
                self.parent_id = Place::of(message, id.len())?
            }
            (3, Item::Bytes(state)) => drop(utf8(state)?),
            (5, Item::Bytes(name)) => self.name = Place::of(message, name.len())?,
            (7, Item::Fixed(time)) => self.start = time,
            (8, Item::Fixed(time)) => self.end = time,
            (15, Item::Bytes(status)) => self.status = code(status)?,
            (6 | 10 | 12 | 14, Item::Number(_)) | (13, Item::Bytes(_)) | (16, Item::Short) => {}
            _ => return None,
        }
        Some(())
    }

    /// The span; None if its name is no text.
    fn span<'a>(&self, data: &'a [u8]) -> Option<Span<'a>> {
        Some(Span {
            name: utf8(self.name.bytes(data))?,
            trace_id: self.trace_id.bytes(data),
            span_id: self.span_id.bytes(data),
            parent_id: self.parent_id.bytes(data),
            start: self.start,
            end: self.end,
            status: self.status,
        })
    }
}

/// Appends the head (field 1) of a group, even if it is missing, and then what the group holds (field 2).
fn parts(data: &[u8], group: Place, kind: Kind, steps: &mut Vec<(Kind, Place)>) -> Option<()> {
    let (mut head, place) = (None, steps.len());
    steps.push((kind, Place::default()));
    let mut message = group.fields(data)?;
    while !message.is_at_end() {
        match message.field()? {
            (1, Item::Bytes(part)) if head.is_none() => head = Some(Place::of(&message, part.len())?),
            (2, Item::Bytes(part)) => {
                let part = Place::of(&message, part.len())?;
                match kind {
                    Kind::Resource => parts(data, part, Kind::Scope, steps)?,
                    Kind::Scope | Kind::Span => steps.push((Kind::Span, part)),
                }
            }
            (3, Item::Bytes(part)) => drop(utf8(part)?),
            _ => return None,
        }
    }
    let head = head.unwrap_or_default();
    if kind == Kind::Scope {
        scope(data, head)?;
    }
    steps.get_mut(place)?.1 = head;
    Some(())
}

/// Name and version of a scope.
fn scope(data: &[u8], place: Place) -> Option<(&str, &str)> {
    let (mut name, mut version) = (None, None);
    let mut message = place.fields(data)?;
    while !message.is_at_end() {
        match message.field()? {
            (1, Item::Bytes(text)) if name.is_none() => name = Some(utf8(text)?),
            (2, Item::Bytes(text)) if version.is_none() => version = Some(utf8(text)?),
            (3, Item::Bytes(_)) | (4, Item::Number(_)) => {}
            _ => return None,
        }
    }
    Some((name.unwrap_or_default(), version.unwrap_or_default()))
}

fn code(data: &[u8]) -> Option<u64> {
    let (mut found, mut message) = (None, Message::new(data));
    while !message.is_at_end() {
        match message.field()? {
            (2, Item::Bytes(text)) => drop(utf8(text)?),
            (3, Item::Number(code)) if code < 128 && found.is_none() => found = Some(code),
            _ => return None,
        }
    }
    Some(found.unwrap_or_default())
}

/// Reads an attribute; whether it is a usual one, whose name did not come before.
fn attribute<T: Target>(
    raw: &[u8],
    names: &mut Names<T::Name>,
    target: &mut T,
    rest: &mut Rest,
) -> Result<bool, T::Error> {
    rest.attributes = rest.attributes.saturating_sub(1);
    let Some((name, encoded)) = pair(raw) else { return Ok(false) };
    if let Some(known) = names.known.get(name) {
        return add(raw, encoded, known.rule, &known.stands, target);
    }
    let Some(text) = utf8(name) else { return Ok(false) };
    rest.attributes = rest.attributes.saturating_sub(ASKED);
    let (rule, stands) = target.name(text)?;
    let is_usual = add(raw, encoded, rule, &stands, target);
    names.note(name, rule, stands);
    is_usual
}

fn add<T: Target>(
    raw: &[u8],
    encoded: &[u8],
    rule: Rule,
    name: &T::Name,
    target: &mut T,
) -> Result<bool, T::Error> {
    // a parser does not look into all large values
    let is_read = raw.len() <= LONGEST || (rule == Rule::Dropped && encoded.first() == Some(&TEXT));
    let found = match (is_read && rule != Rule::Encoded).then(|| value(encoded, 0)).flatten() {
        None => Found::Encoded(raw),
        Some(_) if rule == Rule::Dropped => return Ok(true),
        Some(Value::Other) => return Ok(true),
        Some(Value::Text(text)) => Found::Text(text),
        Some(Value::Number(number)) => Found::Number(number),
        Some(Value::Flag(flag)) => Found::Flag(flag),
        Some(Value::Double(bits)) => Found::Double(f64::from_bits(bits)),
    };
    target.add(name, found)
}
