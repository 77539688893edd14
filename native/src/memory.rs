//! Finds items again that are of a kind that was seen before. What a kind becomes is known by who uses this.
//!
//! A key is compared whole: a hash only finds it. Which values belong to it was observed and is told.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::{HashMap, HashSet};

use crate::requests::{self, Span, Value};
use crate::spans::has_prefix;

/// Bytes of a read value, of one that is not read, of the name of an attribute and of a span.
const LONGEST_READ: usize = 512;
const LONGEST_UNREAD: usize = 16_000;
const LONGEST_NAME: usize = 256;
/// Bytes of an entry beside its key.
const ENTRY: usize = 64;
/// Kinds of one shape; with one more it is not worth a memory.
const MOST_OF_SHAPE: u32 = 256;
const LARGEST_NUMBER: u64 = 1_000_000_000;
/// Hits of a new kind that are compared.
const TRIAL: u32 = 16;
pub const COUNTS: usize = 6;
const TAG: u8 = 255;
const NEVER: u32 = u32::MAX;

/// Why an item is not found: the places are those of the reasons that the user of this knows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Miss {
    Layout,
    New,
    Unlearnable,
    NotPlain,
    Content,
    Events,
}

/// How a name is read: a scalar (0) or one of these.
const WORDS: u8 = 1;
const DROPPED: u8 = 2;
const REDUCED: u8 = 3;

/// What of a name varies in every call.
#[derive(Clone, Copy, PartialEq)]
enum Slot {
    None,
    Count(usize),
    /// The number of its field; whether its class has what stands before the first `-` or `_`.
    Text(u8, bool),
    /// A text that varies if it is plain, and a value otherwise.
    Tag,
}

struct Name {
    id: u32,
    rule: u8,
    slot: Slot,
}

struct Shape {
    id: u32,
    kinds: u32,
    /// By the places of attributes; None: it is not learned.
    reads: Option<Vec<bool>>,
}

struct Kind {
    number: u32,
    hits: u32,
    is_wanted: bool,
}

/// What is told once: texts that stand for nothing, beginnings of secrets, parts of texts that are looked for, the
/// sums whose signs decide; and names on which readings depend, by themselves, beginnings and parts.
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject), pyo3(from_item_all))]
#[derive(Default)]
pub struct Plan {
    pub absent: Vec<Vec<u8>>,
    pub secrets: Vec<Vec<u8>>,
    pub parts: Vec<Vec<u8>>,
    pub sums: Vec<Vec<i64>>,
    /// Names of events that are read.
    pub events: Vec<Vec<u8>>,
    /// The number of the text that is hashed, the person of the hash, and what the text has at least behind a sign that
    /// ends prefixes.
    pub hashed: (u8, Vec<u8>, usize),
    /// The number of texts that may be e-mail addresses; whether one is belongs to its class.
    pub person: u8,
    pub declared: HashSet<Vec<u8>>,
    pub beginnings: Vec<Vec<u8>>,
    pub name_parts: Vec<Vec<u8>>,
    /// Beginnings of names that are always dropped, and of exceptions.
    pub dropped: (Vec<Vec<u8>>, Vec<Vec<u8>>),
}

/// An item that was found, and what varies in it.
pub struct Hit<'a> {
    pub kind: u32,
    pub is_compared: bool,
    pub texts: Vec<&'a [u8]>,
    pub counts: [i64; COUNTS],
    /// Places in `texts` of those that may be hashed.
    hashed: Vec<usize>,
}

#[derive(Default)]
pub struct Memory {
    plan: Plan,
    names: HashMap<Vec<u8>, Name>,
    /// Further names that rules look for.
    asked: HashSet<Vec<u8>>,
    contexts: HashMap<u32, Vec<Vec<u8>>>,
    shapes: HashMap<Vec<u8>, Shape>,
    kinds: HashMap<Vec<u8>, Kind>,
    next_shape: u32,
}

#[derive(Clone, Copy)]
struct Attribute<'a> {
    name: u32,
    rule: u8,
    slot: Slot,
    sort: u8,
    value: Value<'a>,
    raw: &'a [u8],
}

struct Keys<'a> {
    shape: Vec<u8>,
    /// Names and texts that may hold figures.
    reduced: Vec<(&'a [u8], &'a [u8])>,
    attributes: Vec<Attribute<'a>>,
}

impl Memory {
    pub fn new(plan: Plan) -> Self {
        Memory { plan, ..Default::default() }
    }

    pub fn clear(&mut self) {
        let next_shape = self.next_shape; // no number is given twice
        *self = Memory { plan: std::mem::take(&mut self.plan), next_shape, ..Default::default() };
    }

    /// Kinds, and bytes of all that is kept.
    pub fn size(&self) -> (usize, usize) {
        let keys = self.kinds.keys().chain(self.shapes.keys()).chain(self.names.keys());
        let kept = keys.chain(self.contexts.values().flatten());
        (self.kinds.len(), kept.map(|key| key.len().saturating_add(ENTRY)).fold(0, usize::saturating_add))
    }

    /// Drops the kinds that nobody asked for since the last sweep; the numbers of those that stay.
    pub fn sweep(&mut self) -> Vec<u32> {
        self.kinds.retain(|_, kind| std::mem::take(&mut kind.is_wanted));
        self.shapes.values_mut().for_each(|shape| shape.kinds = 0);
        self.kinds.values().map(|kind| kind.number).collect()
    }

    /// Takes a name: its rule by number, and its slot: 0 none, 1 to 6 a count, above a text (odd: with a class), 255 a
    /// tag.
    pub fn name(&mut self, name: &[u8], rule: u8, slot: u8) -> Option<()> {
        let slot = match usize::from(slot) {
            0 => Slot::None,
            at if at <= COUNTS => Slot::Count(at.checked_sub(1)?),
            _ if slot == TAG => Slot::Tag,
            _ => Slot::Text(slot, slot % 2 == 1),
        };
        let id = u32::try_from(self.names.len()).ok()?;
        self.names.insert(name.to_vec(), Name { id, rule, slot });
        Some(())
    }

    /// Takes the texts of a context, from which texts that vary must differ.
    pub fn context(&mut self, number: u32, texts: Vec<Vec<u8>>) {
        self.contexts.insert(number, texts);
    }

    /// Takes names that rules look for, present or not.
    pub fn ask(&mut self, names: Vec<Vec<u8>>) {
        self.asked.extend(names);
    }

    /// Whether no reading depends on the name, so that it belongs to no kind.
    pub fn is_free(&self, name: &[u8]) -> bool {
        let begins = |with: &[Vec<u8>]| with.iter().any(|begin| name.starts_with(begin));
        let (dropped, kept) = &self.plan.dropped;
        if self.plan.declared.contains(name) {
            return false;
        }
        if begins(dropped) && !begins(kept) {
            return true;
        }
        let has = |part: &Vec<u8>| name.windows(part.len().max(1)).any(|own| own == part);
        !self.asked.contains(name) && !begins(&self.plan.beginnings) && !self.plan.name_parts.iter().any(has)
    }

    fn keys<'a>(&self, context: u32, span: &Span<'a>) -> Result<Keys<'a>, Miss> {
        if span.name.len() > LONGEST_NAME {
            return Err(Miss::Layout);
        }
        let (shape, attributes) = (Vec::with_capacity(256), Vec::with_capacity(32));
        let mut keys = Keys { shape, reduced: Vec::new(), attributes };
        let mut found = vec![false; self.names.len().saturating_add(1)]; // by the numbers of names
        keys.shape.extend_from_slice(&context.to_le_bytes());
        for raw in &span.attributes {
            let (name, encoded) = requests::pair(raw).ok_or(Miss::Layout)?;
            let Some(known) = self.names.get(name) else {
                if !self.is_free(name) {
                    return Err(Miss::New);
                }
                requests::value(encoded, 0).ok_or(Miss::Layout)?;
                continue;
            };
            let is_found =
                usize::try_from(known.id).ok().and_then(|id| found.get_mut(id)).ok_or(Miss::Layout)?;
            if std::mem::replace(is_found, true) {
                return Err(Miss::Layout);
            }
            let value = requests::value(encoded, 0).ok_or(Miss::Layout)?;
            if let (REDUCED, Value::Text(text)) = (known.rule, value) {
                keys.reduced.push((name, text));
            }
            let sort = match (known.rule, value) {
                (DROPPED | REDUCED, _) => 0,
                (_, Value::Text(text)) if text.len() > LONGEST_UNREAD => return Err(Miss::Layout),
                (_, Value::Text(_)) => 1,
                (WORDS, Value::Other) => 6,
                (WORDS, _) | (_, Value::Other) => 0,
                (_, Value::Number(_)) => 2,
                (_, Value::Double(_)) => 3,
                (_, Value::Flag(_)) => 4,
            };
            keys.shape.extend_from_slice(&known.id.to_le_bytes());
            keys.shape.push(sort);
            let slot = if sort == 0 { Slot::None } else { known.slot };
            let (name, rule) = (known.id, known.rule);
            keys.attributes.push(Attribute { name, rule, slot, sort, value, raw: encoded });
        }
        Ok(keys)
    }

    /// Appends what decides within a shape; returns what varies.
    fn kind<'a>(
        &self,
        context: u32,
        shape: &Shape,
        span: &Span<'a>,
        attributes: &[Attribute<'a>],
        key: &mut Vec<u8>,
    ) -> Result<Hit<'a>, Miss> {
        let reads = shape.reads.as_ref().ok_or(Miss::Unlearnable)?;
        key.clear();
        key.extend_from_slice(&shape.id.to_le_bytes());
        for (id, length) in [(span.trace_id, 16), (span.span_id, 8), (span.parent_id, 8)] {
            if !id.is_empty() && id.len() != length {
                return Err(Miss::Layout);
            }
            key.push(u8::from(id.iter().any(|byte| *byte != 0)));
        }
        if span.start > i64::MAX as u64 || span.end > i64::MAX as u64 {
            return Err(Miss::NotPlain);
        }
        key.push(u8::from(span.start > 0));
        key.push(u8::from(span.end > 0));
        key.push(span.end.cmp(&span.start) as u8);
        key.push(u8::try_from(span.status).map_err(|_| Miss::Layout)?);
        append(key, span.name);
        let mut hit = Hit {
            kind: 0,
            is_compared: false,
            texts: Vec::with_capacity(8),
            counts: [0; COUNTS],
            hashed: Vec::new(),
        };
        let mut stated = [0u8; COUNTS];
        for (place, one) in attributes.iter().enumerate() {
            match (one.slot, one.value) {
                (Slot::Count(at), Value::Number(number)) => {
                    let count = u64::try_from(number).map_err(|_| Miss::NotPlain)?;
                    let (Some(kept), Some(state)) = (hit.counts.get_mut(at), stated.get_mut(at)) else {
                        return Err(Miss::Layout);
                    };
                    if count > LARGEST_NUMBER || (*state > 0 && *kept != number) {
                        return Err(Miss::NotPlain);
                    }
                    *kept = number;
                    *state = if number == 0 { 1 } else { 2 };
                }
                (Slot::Text(field, has_class), Value::Text(text)) => {
                    let is_address = field == self.plan.person && text.contains(&b'@');
                    let is_plain = if is_address {
                        is_address_of(text, &self.plan.secrets)
                    } else {
                        self.is_plain(has_class, text)
                    };
                    if !is_plain || self.is_elsewhere(context, place, text, attributes, reads)? {
                        return Err(Miss::NotPlain);
                    }
                    if field == self.plan.hashed.0 {
                        hit.hashed.push(hit.texts.len());
                    }
                    key.extend_from_slice(&[field, u8::from(is_address)]);
                    if has_class {
                        let end = text.iter().position(|byte| matches!(byte, b'-' | b'_'));
                        append(key, end.and_then(|end| text.get(..end)).unwrap_or_default());
                    }
                    hit.texts.push(text);
                }
                (Slot::Tag, Value::Text(text))
                    if self.is_plain(false, text)
                        && !self.is_elsewhere(context, place, text, attributes, reads)? =>
                {
                    key.push(1);
                    hit.texts.push(text);
                }
                (Slot::Count(_) | Slot::Text(..), _) => return Err(Miss::NotPlain),
                (Slot::None | Slot::Tag, _) => {
                    if one.slot == Slot::Tag {
                        key.push(0);
                    }
                    if one.sort != 0 && (one.rule == WORDS || *reads.get(place).ok_or(Miss::New)?) {
                        if one.raw.len() > LONGEST_READ {
                            return Err(Miss::NotPlain);
                        }
                        append(key, one.raw);
                    }
                }
            }
        }
        key.extend_from_slice(&stated);
        for sum in &self.plan.sums {
            let parts = sum.iter().zip(hit.counts);
            let total =
                parts.fold(0i64, |sum, (factor, count)| sum.saturating_add(factor.saturating_mul(count)));
            key.push(total.cmp(&0) as u8);
        }
        Ok(hit)
    }

    /// Whether the text is that of another attribute or of the context as well, so that rules may find them equal.
    fn is_elsewhere(
        &self,
        context: u32,
        place: usize,
        text: &[u8],
        attributes: &[Attribute<'_>],
        reads: &[bool],
    ) -> Result<bool, Miss> {
        let mut others = attributes.iter().enumerate();
        let is_same = |(at, other): (usize, &Attribute<'_>)| {
            at != place
                && other.value == Value::Text(text)
                && (other.slot != Slot::None || reads.get(at).copied().unwrap_or(true))
        };
        let known = self.contexts.get(&context).ok_or(Miss::New)?;
        Ok(others.any(is_same) || known.iter().any(|other| other == text))
    }

    fn is_plain(&self, has_class: bool, text: &[u8]) -> bool {
        let is_plain = (1..=96).contains(&text.len())
            && text.iter().all(|byte| {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'-' | b'_')
                    || (!has_class && matches!(byte, b'.' | b':'))
            });
        let is_short = text.len() < 16 && !text.iter().any(|byte| matches!(byte, b'-' | b'_' | b'.'));
        let start = text.get(..2).unwrap_or_default().to_ascii_lowercase();
        let is_secret = !has_class && !is_short && self.plan.secrets.contains(&start);
        let mut parts = self.plan.parts.iter();
        let is_at = |own: &[u8], part: &[u8]| own.first() == part.first() && own == part;
        let has_part = parts.any(|part| text.windows(part.len().max(1)).any(|own| is_at(own, part)));
        is_plain && !is_secret && !has_part && !self.plan.absent.iter().any(|word| word == text)
    }

    /// What an item is known as; or why it is not. `has_figures` looks into a text that may hold some.
    pub fn find<'a>(
        &mut self,
        context: u32,
        span: &Span<'a>,
        has_figures: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Result<Hit<'a>, Miss> {
        for event in &span.events {
            let name = requests::event(event).ok_or(Miss::Layout)?;
            if self.plan.events.iter().any(|read| read == name) {
                return Err(Miss::Events);
            }
        }
        let Keys { shape: mut key, reduced, attributes } = self.keys(context, span)?;
        let shape = self.shapes.get(&key).ok_or(Miss::New)?;
        let mut hit = self.kind(context, shape, span, &attributes, &mut key)?;
        let Some(kind) = self.kinds.get_mut(&key) else {
            return Err(if shape.kinds < MOST_OF_SHAPE { Miss::New } else { Miss::Unlearnable });
        };
        kind.is_wanted = true;
        if kind.number == NEVER {
            return Err(Miss::Unlearnable);
        }
        if reduced.into_iter().any(|(name, text)| has_figures(name, text)) {
            return Err(Miss::Content);
        }
        kind.hits = kind.hits.saturating_add(1);
        hit.kind = kind.number;
        hit.is_compared = kind.hits <= TRIAL;
        Ok(hit)
    }

    /// The hash of the only text of the number that is hashed; None if there are others, or if it is short.
    pub fn digest(&self, hit: &Hit<'_>) -> Option<[u8; 16]> {
        let [place] = hit.hashed.as_slice() else { return None };
        let (_, person, least) = &self.plan.hashed;
        let text = hit.texts.get(*place)?;
        if !has_prefix(text, *least) {
            return None;
        }
        let mut hash = blake2b_simd::Params::new();
        hash.hash_length(16).personal(person);
        hash.hash(text).as_bytes().try_into().ok()
    }

    /// What varies in an item of whose shape these names are read, remembered under a number if there is one.
    /// `NEVER`, and the kind is not asked for again; without names the shape is not, for good.
    pub fn learn<'a>(
        &mut self,
        context: u32,
        data: &'a [u8],
        names: Option<&[Vec<u8>]>,
        number: Option<u32>,
    ) -> Result<Hit<'a>, Miss> {
        let span = requests::span(data).ok_or(Miss::Layout)?;
        let Keys { shape: mut key, attributes, .. } = self.keys(context, &span)?;
        let reads: Option<Vec<bool>> = names.map(|names| {
            let read = names.iter().filter_map(|name| Some(self.names.get(name)?.id));
            let read: Vec<u32> = read.collect();
            attributes.iter().map(|one| read.contains(&one.name)).collect()
        });
        if self.shapes.get(&key).is_none_or(|shape| shape.reads.is_some() && shape.reads != reads) {
            self.next_shape = self.next_shape.wrapping_add(1);
            self.shapes.insert(key.clone(), Shape { id: self.next_shape, kinds: 0, reads });
        }
        let known = self.shapes.get_mut(&key).ok_or(Miss::New)?;
        known.kinds = known.kinds.saturating_add(u32::from(number.is_some()));
        let shape = self.shapes.get(&key).ok_or(Miss::New)?;
        let hit = self.kind(context, shape, &span, &attributes, &mut key)?;
        if let Some(number) = number {
            self.kinds.insert(key, Kind { number, hits: 0, is_wanted: false });
        }
        Ok(hit)
    }
}

/// Whether a text is certainly an e-mail address, and certainly no credential.
fn is_address_of(text: &[u8], secrets: &[Vec<u8>]) -> bool {
    let mut parts = text.split(|byte| *byte == b'@');
    let (Some(local), Some(domain), None) = (parts.next(), parts.next(), parts.next()) else { return false };
    let is_name = |text: &[u8], more: &[u8]| {
        !text.is_empty() && text.iter().all(|byte| byte.is_ascii_alphanumeric() || more.contains(byte))
    };
    let mut labels = domain.rsplit(|byte| *byte == b'.');
    let is_top = |label: &[u8]| label.len() > 1 && label.iter().all(u8::is_ascii_alphabetic);
    let is_domain = labels.next().is_some_and(is_top)
        && domain.contains(&b'.')
        && labels.all(|label| is_name(label, b"-"));
    // letters with at most one dot are no credential, whatever they begin with
    let dots = local.iter().filter(|byte| **byte == b'.').count();
    let is_word = dots < 2 && local.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'.');
    let start = local.get(..2).unwrap_or_default().to_ascii_lowercase();
    let is_local = is_name(local, b"._+-") && !local.windows(2).any(|two| two == b"..");
    text.len() <= 96 && is_local && is_domain && (is_word || !secrets.contains(&start))
}

fn append(key: &mut Vec<u8>, value: &[u8]) {
    key.extend_from_slice(&(value.len() as u32).to_le_bytes());
    key.extend_from_slice(value);
}
