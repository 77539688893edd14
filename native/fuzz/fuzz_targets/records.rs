//! Packed bytes that nobody packed: walker, encoder, sums and decimal text answer or refuse, and agree with each other.

#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use tollhouse_native::msgpack::Cursor;
use tollhouse_native::records::{Block, Fields, Kind, Table};
use tollhouse_native::spans::{Encoder, Layout};
use tollhouse_native::sums::{self, Arrival, Plan, Sums};
use tollhouse_native::wire::Attribute;

const TAG: u64 = 1;
const HOUR: u64 = 3_600_000_000_000;

/// Tag 1, then: id, trace, span, start, end, model, user, count, cost, shadow, tags.
fn table() -> Table {
    let kinds = [
        (Kind::Bytes, false),
        (Kind::Text, true),
        (Kind::Text, true),
        (Kind::Number, true),
        (Kind::Number, true),
        (Kind::Text, true),
        (Kind::Text, true),
        (Kind::Number, true),
        (Kind::Text, true),
        (Kind::Flag, false),
        (Kind::Texts, false),
    ];
    Table::new(TAG, kinds.to_vec(), 5)
}

fn named(name: &[u8]) -> Attribute {
    Attribute(vec![0x4a], name.to_vec())
}

fn layout() -> Layout {
    Layout {
        span: vec![0x12],
        trace_id: (1, vec![0x0a, 16]),
        span_id: (2, vec![0x12, 8]),
        start: (3, vec![0x39]),
        end: (4, vec![0x41]),
        times: (b"none".to_vec(), b"start".to_vec(), b"end".to_vec()),
        shadow: 9,
        combination: vec![5],
        id: (0, named(b"id")),
        response_id: (6, named(b"response")),
        long_enough: 16,
        attributes: vec![(7, true, named(b"count")), (8, false, named(b"cost"))],
        tags: (10, named(b"tag.")),
        stand_in: b"stand-in".to_vec(),
    }
}

fn plan() -> Plan {
    Plan {
        start: 3,
        end: 4,
        shadow: 9,
        dimensions: vec![5, 6],
        tags: (10, HashSet::from([b"a".to_vec()])),
        sized: (7, 7, vec![10, 1000]),
        counts: vec![(7, 1 << 40)],
        amounts: (vec![8], 27, 10i128.pow(34)),
        hour: HOUR,
        unit: 1_000_000,
        edges: vec![1, 10, 100],
    }
}

fuzz_target!(|packed: &[u8]| {
    let _ = sums::amount(packed, 27);
    let _ = Cursor::new(packed).skip();
    let table = table();
    let Some(count) = Cursor::new(packed).array().filter(|count| *count <= 4096) else { return };
    let count = count as usize;
    let Some((offsets, odd)) = table.walk(packed, count) else { return };
    assert_eq!(count + 1, offsets.len());
    assert_eq!(Some(packed.len()), offsets.last().map(|end| *end as usize));
    assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]));
    let offsets: Vec<u8> = offsets.iter().flat_map(|at| at.to_ne_bytes()).collect();
    let block = Block { packed, offsets: &offsets };
    let mut encoder = Encoder::new(layout());
    let mut sums = Sums::new(plan());
    let came = Arrival { hour: 1, before: HOUR * 3 };
    let (mut at, mut added, mut fields) = (0, 0, Fields::default());
    while at < count {
        let Some(record) = block.record(at) else { panic!("a record that was found is there") };
        let is_plain = table.read::<true>(&mut Cursor::new(record), &mut fields).is_some();
        assert_eq!(!odd.contains(&(at as u32)), is_plain);
        let next = sums.add(&table, block, at, count, at as u64, came);
        assert!((at..=count).contains(&next));
        added += next - at;
        let learned = encoder.learn(&table, block, at, b"\x4a\x00");
        assert!(learned.is_some() || !is_plain);
        let spans = encoder.encode(&table, block, at, count, 5);
        assert!(spans.next >= at && spans.next <= count);
        assert_eq!(spans.next - at, spans.count + spans.shadows);
        assert!(spans.encoded.len() >= spans.count);
        at = next.max(at + 1);
    }
    assert!(block.record(count).is_none());
    let (rows, first) = sums.take();
    assert!(rows.len() <= added && first.len() <= rows.len());
    assert!(rows.iter().all(|row| row.measures[0] > 0 && first.contains_key(&row.hour)));
});
