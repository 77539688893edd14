//! What Python sees.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::decode::{self, Found, Names, Rule, Target, Walk};
use crate::records::{self, Block, Kind};
use crate::sums::{self, Arrival};
use crate::{ids, spans};

/// Changes with what is called from Python: who finds another number does not use the module.
const INTERFACE: u32 = 10;
/// Work on more bytes lets other threads of Python run meanwhile.
const LARGE: usize = 64 * 1024;

/// Calls `work` with the bytes, without the interpreter's lock if there are many of them.
fn aside<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < LARGE {
        return work();
    }
    py.detach(work)
}

/// As they are told by their places.
const KINDS: [Kind; 6] = [Kind::Text, Kind::Bytes, Kind::Number, Kind::Flag, Kind::Texts, Kind::Empty];

/// The fields of a record: the kind of each, and whether it may be nil.
#[pyclass(frozen, module = "tollhouse_native")]
struct Table(records::Table);

#[pymethods]
impl Table {
    #[new]
    fn new(tag: u64, fields: Vec<(usize, bool)>, least: usize) -> PyResult<Self> {
        let kind = |(kind, may_be_nil)| Some((*KINDS.get(kind)?, may_be_nil));
        let kinds: Option<Vec<_>> = fields.into_iter().map(kind).collect();
        let kinds = kinds.ok_or_else(|| PyValueError::new_err("a field is of no kind"))?;
        Ok(Table(records::Table::new(tag, kinds, least)))
    }

    /// Where each record begins and the last one ends, and the places of those that are not plain; None for damage.
    fn walk<'py>(
        &self,
        py: Python<'py>,
        packed: &[u8],
        count: usize,
    ) -> Option<(Bound<'py, PyBytes>, Vec<u32>)> {
        let (offsets, odd) = aside(py, packed.len(), || self.0.walk(packed, count))?;
        let offsets: Vec<u8> = offsets.iter().flat_map(|at| at.to_ne_bytes()).collect();
        Some((PyBytes::new(py, &offsets), odd))
    }
}

type Rows<'py> = Vec<(u64, Bound<'py, PyBytes>, Vec<Measure>)>;

/// A number of which most are small: those are faster to convert.
#[derive(IntoPyObject)]
enum Measure {
    Small(i64),
    Large(i128),
}

/// Encodes packed records as spans.
#[pyclass(module = "tollhouse_native")]
struct Encoder {
    table: Py<Table>,
    encoder: spans::Encoder,
}

#[pymethods]
impl Encoder {
    #[new]
    fn new(table: Py<Table>, layout: spans::Layout) -> Self {
        Encoder { table, encoder: spans::Encoder::new(layout) }
    }

    /// Remembers what the combination of a record is encoded as; whether it could.
    fn learn(&mut self, packed: &[u8], offsets: &[u8], place: usize, encoded: &[u8]) -> bool {
        let table = &self.table.get().0;
        self.encoder.learn(table, Block { packed, offsets }, place, encoded).is_some()
    }

    /// The encoded spans, their number, records left out, and the first place that was not done.
    #[allow(clippy::too_many_arguments)]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        packed: &[u8],
        offsets: &[u8],
        begin: usize,
        end: usize,
        at: u64,
    ) -> (Bound<'py, PyBytes>, usize, usize, usize) {
        let (table, encoder) = (&self.table.get().0, &self.encoder);
        let block = Block { packed, offsets };
        let made = aside(py, packed.len(), || encoder.encode(table, block, begin, end, at));
        (PyBytes::new(py, &made.encoded), made.count, made.shadows, made.next)
    }
}

/// Adds packed records up.
#[pyclass(module = "tollhouse_native")]
struct Sums {
    table: Py<Table>,
    sums: sums::Sums,
}

#[pymethods]
impl Sums {
    #[new]
    fn new(table: Py<Table>, plan: sums::Plan) -> Self {
        Sums { table, sums: sums::Sums::new(plan) }
    }

    /// Adds records until before the place that is returned: `end`, or one that is not to be added here.
    #[allow(clippy::too_many_arguments)]
    fn add(
        &mut self,
        py: Python<'_>,
        packed: &[u8],
        offsets: &[u8],
        begin: usize,
        end: usize,
        number: u64,
        arrival: (u64, u64),
    ) -> usize {
        let (table, sums) = (&self.table.get().0, &mut self.sums);
        let came = Arrival { hour: arrival.0, before: arrival.1 };
        let block = Block { packed, offsets };
        aside(py, packed.len(), || sums.add(table, block, begin, end, number, came))
    }

    #[getter]
    fn is_full(&self) -> bool {
        self.sums.is_full()
    }

    /// What was added up: hour, what it is counted under, and measures; the lowest number of each hour; begins anew.
    fn take<'py>(&mut self, py: Python<'py>) -> (Rows<'py>, HashMap<u64, u64>) {
        let (rows, first) = self.sums.take();
        let measure = |sum: i128| i64::try_from(sum).map_or(Measure::Large(sum), Measure::Small);
        let measures = |sums: Vec<i128>| sums.into_iter().map(measure).collect();
        let rows = rows.into_iter();
        (rows.map(|row| (row.hour, PyBytes::new(py, &row.values), measures(row.measures))).collect(), first)
    }
}

/// An id as text; None if it is not there.
fn hex<'py>(py: Python<'py>, id: &[u8]) -> Option<Bound<'py, PyString>> {
    let digits = spans::hex(id);
    id.iter().any(|byte| *byte != 0).then(|| PyString::new(py, &String::from_utf8_lossy(&digits)))
}

/// As they are told by their places.
const RULES: [Rule; 3] = [Rule::Scalar, Rule::Dropped, Rule::Encoded];

/// Decodes the spans of requests. `rule` tells by its place how values under a name are read.
#[pyclass(frozen, module = "tollhouse_native")]
struct Decoder {
    rule: Py<PyAny>,
    names: Mutex<Names<Py<PyString>>>,
}

#[pymethods]
impl Decoder {
    #[new]
    fn new(rule: Py<PyAny>) -> Self {
        Decoder { rule, names: Mutex::default() }
    }

    /// A reading of a request; None if its groups are not laid out in the usual way.
    fn open(slf: Py<Self>, py: Python<'_>, request: Py<PyBytes>) -> Option<Reading> {
        let walk = Walk::new(request.as_bytes(py))?;
        Some(Reading { decoder: slf, request, walk, next: Next::default() })
    }
}

impl Decoder {
    /// The names that are kept; none while another thread, which has them, asks Python for a rule.
    fn take_names(&self) -> Names<Py<PyString>> {
        std::mem::take(&mut self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep_names(&self, names: Names<Py<PyString>>) {
        let mut kept = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.size() <= names.size() {
            *kept = names;
        }
    }
}

/// A request that is being decoded.
#[pyclass(module = "tollhouse_native")]
struct Reading {
    decoder: Py<Decoder>,
    request: Py<PyBytes>,
    walk: Walk,
    next: Next,
}

/// What was read of the next resource or span: attributes, names of those that are encoded, and events.
#[derive(Default)]
struct Next {
    attributes: Option<Py<PyDict>>,
    encoded: Vec<Py<PyString>>,
    events: Vec<Py<PyBytes>>,
}

type Groups<'py> = Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>)>;

#[pymethods]
impl Reading {
    /// How many resources, scopes and spans there are.
    #[getter]
    fn items(&self) -> usize {
        self.walk.items()
    }

    /// Decodes on, a bounded part. Of each group the resource and the scope, each None if it is that of the group
    /// before, and spans. None if nothing is left.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Groups<'py>>> {
        let Reading { decoder, request, walk, next } = self;
        let decoder = decoder.get();
        let mut names = decoder.take_names();
        let mut builder = Builder { py, rule: &decoder.rule, next, groups: Vec::new() };
        let is_left = walk.take(request.as_bytes(py), &mut names, &mut builder);
        let groups = builder.groups;
        decoder.keep_names(names);
        Ok(is_left?.then_some(groups))
    }
}

struct Builder<'a, 'py> {
    py: Python<'py>,
    rule: &'a Py<PyAny>,
    next: &'a mut Next,
    groups: Groups<'py>,
}

impl<'py> Builder<'_, 'py> {
    fn dict(&mut self) -> &Bound<'py, PyDict> {
        let py = self.py;
        self.next.attributes.get_or_insert_with(|| PyDict::new(py).unbind()).bind(py)
    }

    /// The attributes that were added, and the names of those that are encoded.
    fn attributes(&mut self) -> (Py<PyDict>, Option<Vec<Py<PyString>>>) {
        let attributes = self.next.attributes.take();
        let attributes = attributes.unwrap_or_else(|| PyDict::new(self.py).unbind());
        (attributes, some(&mut self.next.encoded))
    }

    fn begin(&mut self, resource: Bound<'py, PyAny>, scope: Bound<'py, PyAny>) {
        self.groups.push((resource, scope, Vec::new()));
    }

    fn push(&mut self, span: Bound<'py, PyAny>) {
        *self.next = Next::default();
        if self.groups.is_empty() {
            let none = self.py.None().into_bound(self.py);
            self.begin(none.clone(), none);
        }
        if let Some((_, _, spans)) = self.groups.last_mut() {
            spans.push(span);
        }
    }
}

/// The items, or None if there are none.
fn some<T>(items: &mut Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then(|| std::mem::take(items))
}

impl Target for Builder<'_, '_> {
    type Name = Py<PyString>;
    type Error = PyErr;

    fn name(&mut self, name: &str) -> PyResult<(Rule, Py<PyString>)> {
        let name = PyString::new(self.py, name);
        let rule: usize = self.rule.call1(self.py, (&name,))?.extract(self.py)?;
        let rule = RULES.get(rule).ok_or_else(|| PyValueError::new_err("a name has no rule"))?;
        Ok((*rule, name.unbind()))
    }

    fn add(&mut self, name: &Py<PyString>, found: Found<'_>) -> PyResult<bool> {
        let (py, before) = (self.py, self.dict().len());
        let dict = self.dict();
        match found {
            Found::Text(text) => dict.set_item(name, text)?,
            Found::Number(number) => dict.set_item(name, number)?,
            Found::Flag(flag) => dict.set_item(name, flag)?,
            Found::Double(number) => dict.set_item(name, number)?,
            Found::Encoded(raw) => {
                dict.set_item(name, PyBytes::new(py, raw))?;
                self.next.encoded.push(name.clone_ref(py));
            }
        }
        Ok(self.dict().len() > before)
    }

    fn event(&mut self, encoded: &[u8]) -> PyResult<()> {
        self.next.events.push(PyBytes::new(self.py, encoded).unbind());
        Ok(())
    }

    fn resource(&mut self, encoded: Option<&[u8]>) -> PyResult<()> {
        let py = self.py;
        let resource = match encoded {
            Some(encoded) => PyBytes::new(py, encoded).into_any(),
            None => self.attributes().into_pyobject(py)?.into_any(),
        };
        *self.next = Next::default();
        self.begin(resource, py.None().into_bound(py));
        Ok(())
    }

    fn scope(&mut self, name: &str, version: &str) -> PyResult<()> {
        let py = self.py;
        let scope = (name, version).into_pyobject(py)?.into_any();
        match self.groups.last_mut() {
            Some((_, of_resource, spans)) if of_resource.is_none() && spans.is_empty() => {
                *of_resource = scope
            }
            _ => self.begin(py.None().into_bound(py), scope),
        }
        Ok(())
    }

    fn span(&mut self, span: &decode::Span<'_>) -> PyResult<()> {
        let py = self.py;
        let time = |time: u64| i64::try_from(time).ok().filter(|time| *time > 0);
        let (attributes, encoded) = self.attributes();
        let fields = (
            span.name,
            hex(py, span.trace_id),
            hex(py, span.span_id),
            hex(py, span.parent_id),
            time(span.start),
            time(span.end),
            attributes,
            span.status,
            encoded,
            some(&mut self.next.events),
        );
        self.push(fields.into_pyobject(py)?.into_any());
        Ok(())
    }

    fn encoded_span(&mut self, encoded: &[u8]) -> PyResult<()> {
        self.push(PyBytes::new(self.py, encoded).into_any());
        Ok(())
    }
}

/// Two sorted runs of ids as one.
#[pyfunction]
fn merge<'py>(py: Python<'py>, one: &[u8], other: &[u8]) -> Bound<'py, PyBytes> {
    let merged = aside(py, one.len(), || ids::merge(one, other));
    PyBytes::new(py, &merged)
}

/// A bit for the low end of each id, in so many bytes, a power of two.
#[pyfunction]
fn marks<'py>(py: Python<'py>, run: &[u8], size: usize) -> Bound<'py, PyBytes> {
    let marks = aside(py, run.len(), || ids::marks(run, size));
    PyBytes::new(py, &marks)
}

#[pymodule]
fn tollhouse_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Panic", module.py().get_type::<pyo3::panic::PanicException>())?;
    module.add_function(wrap_pyfunction!(merge, module)?)?;
    module.add_function(wrap_pyfunction!(marks, module)?)?;
    module.add_class::<Table>()?;
    module.add_class::<Encoder>()?;
    module.add_class::<Sums>()?;
    module.add_class::<Decoder>()
}
