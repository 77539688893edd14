//! Requests that nobody sent: the walker answers or refuses, and the memory finds what it was taught.

#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use tollhouse_native::memory::{Memory, Miss, Plan};
use tollhouse_native::requests::{self, Span};

const MOST: usize = 4096;
const CONTEXT: u32 = 1;

fn memory() -> Memory {
    let plan = Plan {
        absent: vec![b"none".to_vec()],
        secrets: vec![b"sk".to_vec()],
        parts: vec![b"..".to_vec()],
        sums: vec![vec![-1, 0, 1, 1, 0, 0], vec![1, 1, 0, 0, 0, -1]],
        events: vec![b"exception".to_vec()],
        hashed: (7, b"rule".to_vec(), 16),
        person: 10,
        declared: [b"gen_ai.operation.name".to_vec()].into(),
        beginnings: vec![b"gen_ai.".to_vec()],
        name_parts: vec![b"model".to_vec()],
        dropped: (vec![b"llm.".to_vec()], vec![b"llm.model".to_vec()]),
    };
    let mut memory = Memory::new(plan);
    memory.context(CONTEXT, vec![b"scope".to_vec()]);
    memory
}

/// A rule and a slot for a name, the same whenever it comes.
fn of_name(name: &[u8]) -> (u8, u8) {
    let sum = name.iter().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    (sum % 4, sum / 4 % 12)
}

fn take_names<'a>(memory: &mut Memory, known: &mut HashMap<Vec<u8>, ()>, span: &Span<'a>) -> Vec<Vec<u8>> {
    let mut read = Vec::new();
    for raw in &span.attributes {
        let Some((name, value)) = requests::pair(raw) else { continue };
        let _ = requests::value(value, 0);
        if name.len() % 3 == 0 && memory.is_free(name) {
            continue;
        }
        if known.insert(name.to_vec(), ()).is_none() {
            let (rule, slot) = of_name(name);
            assert!(memory.name(name, rule, slot).is_some());
        }
        if name.len() % 2 == 0 {
            read.push(name.to_vec());
        }
    }
    read
}

fuzz_target!(|body: &[u8]| {
    let Some(groups) = requests::groups(body, MOST) else { return };
    let (mut memory, mut known) = (memory(), HashMap::new());
    let mut count: usize = 0;
    for group in groups {
        count += 1 + group.items.len();
        assert!(group.resource.len() <= body.len() && group.scope.len() <= body.len());
        for (number, item) in (1u32..).zip(group.items) {
            let Some(span) = requests::span(item) else { continue };
            let read = take_names(&mut memory, &mut known, &span);
            let before = memory.find(CONTEXT, &span, |_, text| text.first() == Some(&b'{')).err();
            match memory.learn(CONTEXT, item, Some(&read), Some(number)) {
                // Nothing was known of it, or it is known again.
                Ok(_) => match memory.find(CONTEXT, &span, |_, _| false) {
                    Ok(hit) => assert_eq!(number, hit.kind),
                    // To learn is to look at no event.
                    Err(miss) => assert!(matches!(miss, Miss::Events | Miss::Layout), "{miss:?}"),
                },
                Err(miss) => assert!(before.is_some(), "known before, and not to be learned: {miss:?}"),
            }
        }
    }
    assert!(count <= MOST);
    let (kinds, bytes) = memory.size();
    assert!(kinds <= count && bytes >= kinds);
    memory.sweep();
    memory.clear();
    assert_eq!(0, memory.size().0);
});
