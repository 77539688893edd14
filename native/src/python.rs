//! What Python sees.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::records::{self, Block, Kind};
use crate::sums::{self, Arrival};
use crate::{ids, memory, requests, spans};

/// Changes with what is called from Python: who finds another number does not use the module.
const INTERFACE: u32 = 9;
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

    fn ask(&mut self, names: Vec<Vec<u8>>) {
        self.memory.ask(names);
    }

    fn is_free(&self, name: &[u8]) -> bool {
        self.memory.is_free(name)
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

    /// Of each span its kind, whether it is to be compared, counts, the hash of a text, ids, times, texts, and the texts of its context;
    /// or the reason of a miss.
    fn find<'py>(
        &mut self,
        py: Python<'py>,
        context: u32,
        items: Vec<Bound<'py, PyBytes>>,
        of_context: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        items.iter().map(|item| self.row(py, context, item.as_bytes(), &of_context)).collect()
    }

    /// What varies in a span: texts and counts; None if it is nothing to be learned. See `memory::Memory::learn`.
    #[pyo3(signature = (context, data, reads, number=None))]
    fn learn<'py>(
        &mut self,
        py: Python<'py>,
        context: u32,
        data: &[u8],
        reads: Option<Vec<Vec<u8>>>,
        number: Option<u32>,
    ) -> PyResult<Option<(Bound<'py, PyTuple>, [i64; memory::COUNTS])>> {
        let found = self.memory.learn(context, data, reads.as_deref(), number).ok();
        found.map(|hit| Ok((PyTuple::new(py, texts(&hit.texts))?, hit.counts))).transpose()
    }
}

impl Memory {
    fn row<'py>(
        &mut self,
        py: Python<'py>,
        context: u32,
        data: &[u8],
        of_context: &[Bound<'py, PyAny>],
    ) -> PyResult<Bound<'py, PyTuple>> {
        let asked = |name: &[u8], text: &[u8]| {
            let answer = self.has_figures.call1(py, (PyBytes::new(py, name), PyBytes::new(py, text)));
            answer.and_then(|answer| answer.is_truthy(py)).unwrap_or(true)
        };
        let span = requests::span(data).ok_or(memory::Miss::Layout);
        let found = span.and_then(|span| Ok((self.memory.find(context, &span, asked)?, span)));
        let (hit, span) = match found {
            Ok(found) => found,
            Err(miss) => return (miss as u8,).into_pyobject(py),
        };
        let mut row = Vec::with_capacity(9 + hit.texts.len() + of_context.len());
        row.push(hit.kind.into_pyobject(py)?.into_any());
        row.push(hit.is_compared.into_pyobject(py)?.to_owned().into_any());
        row.push(hit.counts.into_pyobject(py)?.into_any());
        row.push(self.memory.digest(&hit).map(|digest| PyBytes::new(py, &digest)).into_pyobject(py)?);
        for id in [span.trace_id, span.span_id, span.parent_id] {
            row.push(hex(py, id).into_pyobject(py)?);
        }
        for time in [span.start, span.end] {
            row.push((time > 0).then_some(time).into_pyobject(py)?);
        }
        row.extend(texts(&hit.texts).map(|text| PyString::new(py, text).into_any()));
        row.extend_from_slice(of_context);
        PyTuple::new(py, row)
    }
}

fn texts<'a>(found: &'a [&'a [u8]]) -> impl ExactSizeIterator<Item = &'a str> {
    found.iter().map(|text| std::str::from_utf8(text).unwrap_or_default())
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
