//! Bytes that nobody packed: the readers answer, and never panic.

use tollhouse_native::memory::{Memory, Plan};
use tollhouse_native::msgpack::Cursor;
use tollhouse_native::records::{Block, Fields, Kind, Table};
use tollhouse_native::{ids, requests, wire};

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

/// A request with one span, and what a memory of it finds in cut and random bytes.
#[test]
fn requests_that_nobody_sent() {
    let span = b"\x0a\x10abcdefghabcdefgh\x12\x08abcdefgh\x39abcdefgh\x4a\x07\x0a\x01k\x12\x02\x18\x05";
    let mut scope = vec![0x12, span.len() as u8];
    scope.extend(span);
    let mut resource = vec![0x12, scope.len() as u8];
    resource.extend(scope);
    let mut request = vec![0x0a, resource.len() as u8];
    request.extend(resource);
    let plan = Plan {
        absent: vec![],
        secrets: vec![],
        parts: vec![b"..".to_vec()],
        sums: vec![vec![1; 6]],
        events: vec![],
        hashed: (7, b"rule".to_vec(), 16),
        ..Default::default()
    };
    let mut memory = Memory::new(plan);
    memory.context(1, vec![]);
    assert!(memory.name(b"k", 0, 1).is_some());
    assert!(memory.learn(1, span, Some(&[]), Some(0)).is_ok());
    let found =
        requests::groups(&request, 9).map(|groups| groups.iter().map(|group| group.items.len()).sum());
    assert_eq!(Some(1usize), found);
    let mut number = numbers(5);
    let mut look = |bytes: &[u8]| {
        for group in requests::groups(bytes, 9).unwrap_or_default() {
            for item in group.items {
                let Some(span) = requests::span(item) else { continue };
                let _ = memory.find(1, &span, |_, _| false);
                let _ = memory.learn(1, item, Some(&[]), Some(1));
            }
        }
    };
    for end in 0..request.len() {
        look(&request[..end]);
    }
    for _ in 0..20_000 {
        let mut broken = request.clone();
        for _ in 0..=number(3) {
            let at = number(broken.len() as u64) as usize;
            broken[at] = number(256) as u8;
        }
        look(&broken);
    }
}
