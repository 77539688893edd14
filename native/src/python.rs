//! What Python sees.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::records::{self, Block, Kind};
use crate::sums::{self, Arrival};
use crate::{ids, memory, requests, spans};

/// Changes with what is called from Python: who finds another number does not use the module.
const INTERFACE: u32 = 3;
/// Work on more bytes lets other threads of Python run meanwhile.
const LARGE: usize = 64 * 1024;

/// Calls `work` with the bytes, without the interpreter's lock if there are many of them.
fn aside<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < LARGE {
        return work();
    }
    py.detach(work)
}

fn numbers<'py>(py: Python<'py>, values: &[u32]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    PyBytes::new(py, &bytes)
}

/// The fields of a record. Kinds: text, bytes, number, flag, texts, empty.
#[pyclass(frozen, module = "tollhouse_native")]
struct Table(records::Table);

#[pymethods]
impl Table {
    #[new]
    fn new(tag: u64, fields: Vec<(String, bool)>, least: usize) -> PyResult<Self> {
        let kinds: PyResult<Vec<_>> = fields
            .into_iter()
            .map(|(kind, may_be_nil)| match kind.as_str() {
                "text" => Ok((Kind::Text, may_be_nil)),
                "bytes" => Ok((Kind::Bytes, may_be_nil)),
                "number" => Ok((Kind::Number, may_be_nil)),
                "flag" => Ok((Kind::Flag, may_be_nil)),
                "texts" => Ok((Kind::Texts, may_be_nil)),
                "empty" => Ok((Kind::Empty, may_be_nil)),
                _ => Err(PyValueError::new_err(format!("{kind} is no kind of a field"))),
            })
            .collect();
        Ok(Table(records::Table::new(tag, kinds?, least)))
    }

    /// Where each record begins and the last one ends, and the places of those that are not plain; None for damage.
    fn walk<'py>(
        &self,
        py: Python<'py>,
        packed: &[u8],
        count: usize,
    ) -> Option<(Bound<'py, PyBytes>, Vec<u32>)> {
        let (offsets, odd) = aside(py, packed.len(), || self.0.walk(packed, count))?;
        Some((numbers(py, &offsets), odd))
    }
}

type Rows<'py> = Vec<(u64, Bound<'py, PyBytes>, Vec<i128>)>;

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

    /// What was added up, by hour, one record and measures, and the lowest number of each hour; begins anew.
    fn take<'py>(&mut self, py: Python<'py>) -> (Rows<'py>, HashMap<u64, u64>) {
        let (rows, first) = self.sums.take();
        let rows = rows.into_iter();
        (rows.map(|row| (row.hour, PyBytes::new(py, &row.sample), row.measures)).collect(), first)
    }
}

type Group<'py> = (usize, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>);

/// Finds spans again that are of a kind that was seen before.
#[pyclass(module = "tollhouse_native")]
struct Memory {
    memory: memory::Memory,
    has_figures: Py<PyAny>,
}

#[pymethods]
impl Memory {
    #[new]
    fn new(plan: memory::Plan, has_figures: Py<PyAny>) -> Self {
        Memory { memory: memory::Memory::new(plan), has_figures }
    }

    fn size(&self) -> (usize, usize) {
        self.memory.size()
    }

    fn sweep(&mut self) -> Vec<u32> {
        self.memory.sweep()
    }

    fn clear(&mut self) {
        self.memory.clear();
    }

    fn name(&mut self, name: &[u8], rule: u8, slot: u8) -> bool {
        self.memory.name(name, rule, slot).is_some()
    }

    fn context(&mut self, number: u32, texts: Vec<Vec<u8>>) {
        self.memory.context(number, texts);
    }

    /// The scopes of a request and how many items it has, of which none is made an object; None as below.
    #[staticmethod]
    fn scopes<'py>(py: Python<'py>, body: &[u8], most: usize) -> Option<(Vec<Bound<'py, PyBytes>>, usize)> {
        let groups = requests::groups(body, most)?;
        let items = groups.iter().map(|group| group.items.len()).sum();
        Some((groups.iter().map(|group| PyBytes::new(py, group.scope)).collect(), items))
    }

    /// Of each group the number of its resource, resource, scope and spans; None if the request is for a parser.
    #[staticmethod]
    fn groups<'py>(py: Python<'py>, body: &[u8], most: usize) -> Option<Vec<Group<'py>>> {
        let whole = |bytes| PyBytes::new(py, bytes);
        let groups = requests::groups(body, most)?.into_iter();
        let found = groups.map(|group| {
            let items = group.items.into_iter().map(whole).collect();
            (group.number, whole(group.resource), whole(group.scope), items)
        });
        Some(found.collect())
    }

    /// The kind, ids, times, texts and counts of a span and whether it is to be compared; or the reason of a miss.
    fn find<'py>(&mut self, py: Python<'py>, context: u32, data: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
        let found = match requests::span(data) {
            None => Err(memory::Miss::Layout),
            Some(span) => {
                let asked = |name: &[u8], text: &[u8]| {
                    let answer = self.has_figures.call1(py, (PyBytes::new(py, name), PyBytes::new(py, text)));
                    answer.and_then(|answer| answer.is_truthy(py)).unwrap_or(true)
                };
                self.memory.find(context, &span, asked).map(|hit| (hit, span))
            }
        };
        let (hit, span) = match found {
            Ok(found) => found,
            Err(miss) => return (miss as u8,).into_pyobject(py),
        };
        (
            hit.kind,
            hex(py, span.trace_id),
            hex(py, span.span_id),
            hex(py, span.parent_id),
            (span.start > 0).then_some(span.start),
            (span.end > 0).then_some(span.end),
            texts(py, &hit.texts)?,
            hit.counts,
            hit.is_compared,
        )
            .into_pyobject(py)
    }

    /// What varies in a span: texts and counts, or the reason why it is nothing. See `memory::Memory::learn`.
    #[pyo3(signature = (context, data, reads, number=None))]
    fn learn<'py>(
        &mut self,
        py: Python<'py>,
        context: u32,
        data: &[u8],
        reads: Option<Vec<Vec<u8>>>,
        number: Option<u32>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        match self.memory.learn(context, data, reads.as_deref(), number) {
            Ok(hit) => (texts(py, &hit.texts)?, hit.counts).into_pyobject(py),
            Err(miss) => (miss as u8,).into_pyobject(py),
        }
    }
}

fn texts<'py>(py: Python<'py>, found: &[&[u8]]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, found.iter().map(|text| std::str::from_utf8(text).unwrap_or_default()))
}

/// An id as text; None if it is not there.
fn hex<'py>(py: Python<'py>, id: &[u8]) -> Option<Bound<'py, PyString>> {
    let digits = spans::hex(id);
    id.iter().any(|byte| *byte != 0).then(|| PyString::new(py, &String::from_utf8_lossy(&digits)))
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
    module.add_class::<Memory>()
}
