//! Bytes that nobody packed: the readers answer, and never panic.

use tollhouse_native::decode::{Found, Names, Rule, Span, Target, Walk};
use tollhouse_native::msgpack::Cursor;
use tollhouse_native::records::{Block, Fields, Kind, Table};
use tollhouse_native::{ids, wire};

const TAG: u64 = 7;

fn table() -> Table {
    let fields = [Kind::Bytes, Kind::Text, Kind::Number, Kind::Flag, Kind::Texts];
    Table::new(TAG, fields.into_iter().zip([false, true, true, true, true]).collect(), 2)
}

/// Two records of this table: one with all fields, one with two.
fn packed() -> Vec<u8> {
    let mut packed = vec![0x92, 0x96, TAG as u8, 0xc4, 2, 1, 2, 0xa3];
    packed.extend(b"abc");
    packed.extend([0xcd, 1, 0, 0xc3, 0x82, 0xa1, b'a', 0xa1, b'b', 0xa1, b'c', 0xa0]);
    packed.extend([0x93, TAG as u8, 0xc4, 0, 0xc0]);
    packed
}

/// Numbers that are the same in each run.
fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    }
}

fn read_all(packed: &[u8]) {
    for count in [0, 1, 2, 16, 65535] {
        let Some((offsets, _)) = table().walk(packed, count) else { continue };
        assert_eq!(Some(packed.len()), offsets.last().map(|end| *end as usize));
        let bytes: Vec<u8> = offsets.iter().flat_map(|at| at.to_ne_bytes()).collect();
        let mut fields = Fields::default();
        for place in 0..count + 1 {
            let block = Block { packed, offsets: &bytes };
            if let Some(record) = block.record(place) {
                let _ = table().read::<true>(&mut Cursor::new(record), &mut fields);
            }
        }
    }
}

#[test]
fn plain_records_are_found() {
    let (offsets, odd) = table().walk(&packed(), 2).expect("two records");
    assert_eq!((vec![1, 23, 28], Vec::<u32>::new()), (offsets, odd));
    assert_eq!(None, table().walk(&packed(), 3));
}

#[test]
fn what_is_cut_anywhere_is_damage() {
    let whole = packed();
    for end in 0..whole.len() {
        assert_eq!(None, table().walk(&whole[..end], 2));
    }
}

#[test]
fn changed_bytes_are_read_or_refused() {
    let mut number = numbers(1);
    for _ in 0..200_000 {
        let mut bytes = packed();
        for _ in 0..=number(3) {
            let at = number(bytes.len() as u64) as usize;
            bytes[at] = number(256) as u8;
        }
        read_all(&bytes);
    }
}

#[test]
fn random_bytes_are_read_or_refused() {
    let mut number = numbers(2);
    for _ in 0..200_000 {
        let bytes: Vec<u8> = (0..number(40)).map(|_| number(256) as u8).collect();
        read_all(&bytes);
        let _ = Cursor::new(&bytes).skip();
    }
}

#[test]
fn lengths_beyond_the_bytes_are_refused() {
    for first in [0xc6, 0xc9, 0xdb, 0xdd, 0xdf] {
        assert_eq!(None, Cursor::new(&[first, 0xff, 0xff, 0xff, 0xff]).skip());
    }
    assert_eq!(None, Cursor::new(&[0x91; 100_000]).skip());
}

#[test]
fn runs_become_one_and_marks_fit_them() {
    let bytes = |ids: &[u64]| ids.iter().flat_map(|id| id.to_ne_bytes()).collect::<Vec<u8>>();
    assert_eq!(bytes(&[1, 2, 2, 9]), ids::merge(&bytes(&[2, 9]), &bytes(&[1, 2])));
    assert_eq!(bytes(&[5]), ids::merge(&bytes(&[]), &bytes(&[5])));
    assert_eq!(vec![0b0010_0010, 0], ids::marks(&bytes(&[1, 5, 1 << 60 | 1]), 2));
}

#[test]
fn a_number_takes_seven_bits_a_byte() {
    let mut out = Vec::new();
    wire::varint(&mut out, 300);
    assert_eq!(vec![0xac, 2], out);
}

/// What a walk finds: the names of values, spans, and what is for a parser.
#[derive(Default)]
struct Log {
    values: Vec<(String, bool)>,
    resources: usize,
    scopes: usize,
    spans: usize,
    encoded: usize,
}

impl Target for Log {
    type Name = (String, bool);
    type Error = ();

    fn name(&mut self, name: &str) -> Result<(Rule, (String, bool)), ()> {
        let rule = [Rule::Scalar, Rule::Dropped, Rule::Encoded][name.len() % 3];
        Ok((rule, (name.to_string(), rule == Rule::Encoded)))
    }

    fn add(&mut self, name: &(String, bool), found: Found<'_>) -> Result<bool, ()> {
        assert!(!name.1 || matches!(found, Found::Encoded(_)));
        self.values.push(name.clone());
        Ok(true)
    }

    fn event(&mut self, _: &[u8]) -> Result<(), ()> {
        Ok(())
    }

    fn resource(&mut self, encoded: Option<&[u8]>) -> Result<(), ()> {
        self.resources += 1;
        self.encoded += usize::from(encoded.is_some());
        Ok(())
    }

    fn scope(&mut self, _: &str, _: &str) -> Result<(), ()> {
        self.scopes += 1;
        Ok(())
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), ()> {
        assert!(matches!(span.trace_id.len(), 0 | 16) && matches!(span.span_id.len(), 0 | 8));
        self.spans += 1;
        Ok(())
    }

    fn encoded_span(&mut self, _: &[u8]) -> Result<(), ()> {
        self.encoded += 1;
        self.spans += 1;
        Ok(())
    }
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    wire::varint(&mut field, bytes.len() as u64);
    field.extend(bytes);
    field
}

/// A request with one span of so many attributes.
fn request(attributes: usize) -> Vec<u8> {
    let mut span = b"\x0a\x10abcdefghabcdefgh\x12\x08abcdefgh\x39abcdefgh".to_vec();
    for number in 0..attributes {
        let name = format!("name{number:08}");
        span.extend(field(9, &[field(1, name.as_bytes()), field(2, b"\x18\x05")].concat()));
    }
    field(1, &[field(1, &field(1, b"\x0a\x01k\x12\x02\x18\x05")), field(2, &field(2, &span))].concat())
}

/// Walks to the end; how many parts that took.
fn walk(data: &[u8], names: &mut Names<(String, bool)>) -> Option<(Log, usize)> {
    let (mut log, mut parts) = (Log::default(), 0);
    let mut walk = Walk::new(data)?;
    while walk.take(data, names, &mut log) == Ok(true) {
        parts += 1;
    }
    assert_eq!(walk.items(), log.resources + log.scopes + log.spans);
    Some((log, parts))
}

#[test]
fn a_walk_pauses_within_a_span_and_names_stay_bounded() {
    let mut names = Names::default();
    let (log, parts) = walk(&request(10_000), &mut names).expect("a request");
    assert_eq!((10_000, 1, 0), (log.values.len(), log.spans, log.encoded));
    assert!((78..=80).contains(&parts), "{parts}");
    for _ in 0..3 {
        let _ = walk(&request(40_000), &mut names);
    }
    assert!(names.size().0 <= 16 * 1024 && names.size().0 > 1000);
}

#[test]
fn requests_that_nobody_sent() {
    let (whole, mut names) = (request(3), Names::default());
    assert_eq!(0, walk(&whole, &mut names).expect("a request").0.encoded);
    for end in 0..whole.len() {
        assert!(walk(&whole[..end], &mut names).is_none() || end == 0);
    }
    let mut number = numbers(5);
    for _ in 0..20_000 {
        let mut broken = whole.clone();
        for _ in 0..=number(3) {
            let at = number(broken.len() as u64) as usize;
            broken[at] = number(256) as u8;
        }
        let _ = walk(&broken, &mut names);
    }
}
