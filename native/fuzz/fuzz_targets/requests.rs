//! Requests that nobody sent: the walk gives each part once, in bounded steps, or refuses the request.

#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use tollhouse_native::decode::{Found, Names, Rule, Span, Target, Walk};

/// What one step may give, and what it may exceed that by.
const MOST_SPANS: usize = 64;
const MOST_ATTRIBUTES: usize = 1024;

#[derive(Default)]
struct Parts {
    /// Of the next resource or span.
    names: HashSet<String>,
    added: usize,
    groups: usize,
    spans: usize,
    text: String,
}

impl Target for Parts {
    type Name = String;
    type Error = ();

    fn name(&mut self, name: &str) -> Result<(Rule, String), ()> {
        let sum = name.bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
        let rule = [Rule::Scalar, Rule::Dropped, Rule::Encoded][usize::from(sum % 3)];
        Ok((rule, name.to_string()))
    }

    fn add(&mut self, name: &String, found: Found<'_>) -> Result<bool, ()> {
        self.added += 1;
        self.text.push_str(&format!("{name} {found:?} "));
        Ok(self.names.insert(name.clone()))
    }

    fn event(&mut self, encoded: &[u8]) -> Result<(), ()> {
        self.text.push_str(&format!("{encoded:?} "));
        Ok(())
    }

    fn resource(&mut self, encoded: Option<&[u8]>) -> Result<(), ()> {
        self.text.push_str(&format!("resource {encoded:?} "));
        self.groups += 1;
        self.names.clear();
        Ok(())
    }

    fn scope(&mut self, name: &str, version: &str) -> Result<(), ()> {
        self.text.push_str(&format!("{name} {version} "));
        self.groups += 1;
        Ok(())
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), ()> {
        assert!([0, 16].contains(&span.trace_id.len()) && span.status < 128);
        assert!([0, 8].contains(&span.span_id.len()) && [0, 8].contains(&span.parent_id.len()));
        self.text.push_str(&format!("{span:?} "));
        self.spans += 1;
        self.names.clear();
        Ok(())
    }

    fn encoded_span(&mut self, encoded: &[u8]) -> Result<(), ()> {
        self.text.push_str(&format!("{encoded:?} "));
        self.spans += 1;
        self.names.clear();
        Ok(())
    }
}

fn read(body: &[u8], names: &mut Names<String>) -> Option<String> {
    let (mut walk, mut parts) = (Walk::new(body)?, Parts::default());
    assert!(walk.items() <= body.len());
    loop {
        let (added, steps) = (parts.added, parts.groups + parts.spans);
        if walk.take(body, names, &mut parts) != Ok(true) {
            break;
        }
        assert!(parts.added - added <= MOST_ATTRIBUTES && parts.groups + parts.spans - steps <= MOST_SPANS);
    }
    assert_eq!(walk.items(), parts.groups + parts.spans);
    Some(parts.text)
}

fuzz_target!(|body: &[u8]| {
    let mut names = Names::default();
    let first = read(body, &mut names);
    // Names that are known by then change nothing.
    assert_eq!(first, read(body, &mut names));
    assert_eq!(first, read(body, &mut names));
    assert!(names.size().0 <= body.len());
});
