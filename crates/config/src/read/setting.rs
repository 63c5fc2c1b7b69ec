//! Settings as rows of a table. A row gives the name, form and bounds of a setting, and the model's field that the
//! setting sets. Reading, printing and the lists of allowed settings are derived from the rows.

use super::reader::Reader;
use super::shape::{SeenSettings, Shape, is_off, property};
use crate::code::Code;
use crate::encode::writer::{SettingWriter, path, quote};
use crate::syntax::{Node, Value};
use flatout_units::quantity::{MICROSECOND, MILLISECOND, exact_duration, exact_size};
use std::ops::RangeInclusive;
use std::path::PathBuf;

type Name = &'static str;
type Bounds = RangeInclusive<u64>;

/// A setting in a block whose model is `T`.
pub(crate) struct Setting<T: 'static> {
    pub(super) name: Name,
    shape: Shape,
    form: Form<T>,
    /// True if the setting may occur more than once.
    repeats: bool,
}

/// How a setting is read and printed, and which field it sets. Except for the last form, a setting is printed only if
/// it differs from the default.
enum Form<T: 'static> {
    /// A boolean: `#true` or `#false`.
    Flag(fn(&mut T) -> &mut bool),
    /// A whole number in a unit and within bounds.
    Whole(Unit, Bounds, WholeField<T>),
    /// A path, relative to the file that mentions it.
    Path(fn(&mut T) -> &mut Option<PathBuf>),
    /// Any other single value.
    Value(&'static dyn ValueForm<T>),
    /// Several values, or a block of settings.
    Node(&'static dyn NodeForm<T>),
    /// A setting with special functions for reading and printing.
    Custom { read: Read<T>, write: Write<T> },
}

/// Reads a setting, whose shape has already been checked.
pub(crate) type Read<T> = fn(&mut Reader<'_>, &Node, &mut T);

/// Prints the setting with this name, unless it has the default value.
pub(crate) type Write<T> = fn(&mut SettingWriter, &'static str, &T);

/// How a whole number is read and printed.
#[derive(Clone, Copy)]
struct Unit {
    read: fn(&mut Reader<'_>, &Value, Bounds) -> Option<u64>,
    show: fn(u64) -> String,
}

const NUMBER: Unit =
    Unit { read: |reader, value, bounds| reader.number(value, bounds), show: |number| number.to_string() };
const SIZE: Unit =
    Unit { read: |reader, value, bounds| reader.size(value, bounds), show: |bytes| quote(&exact_size(bytes)) };
const DURATION: Unit = Unit { read: |reader, value, bounds| reader.duration(value, bounds), show: written_duration };
const DURATION_US: Unit = Unit {
    read: |reader, value, bounds| reader.duration_us(value, bounds),
    show: |duration_us| quote(&exact_duration(duration_us, MICROSECOND)),
};
const LIFETIME: Unit =
    Unit { read: |reader, value, _| lifetime(reader, value), show: |seconds| written_duration(seconds * 1_000) };

/// Formats milliseconds as a string in quotes.
pub(super) fn written_duration(duration_ms: u64) -> String {
    quote(&exact_duration(duration_ms, MILLISECOND))
}

/// Returns the field of a model that holds a whole number.
pub(crate) type WholeField<T> = fn(&mut T) -> &mut dyn Whole;

/// A field with a whole number, which may be optional.
pub(crate) trait Whole {
    fn get(&self) -> Option<u64>;
    /// Sets the field. `value` is within the bounds of the setting's row, which the field can hold.
    fn set(&mut self, value: u64);
}

macro_rules! whole {
    ($($kind:ty),*) => {$(
        impl Whole for $kind {
            fn get(&self) -> Option<u64> {
                Some(*self as u64)
            }

            fn set(&mut self, value: u64) {
                *self = value as $kind;
            }
        }

        impl Whole for Option<$kind> {
            fn get(&self) -> Option<u64> {
                self.map(|value| value as u64)
            }

            fn set(&mut self, value: u64) {
                *self = Some(value as $kind);
            }
        }
    )*};
}

whole!(u8, u16, u32, u64, usize);

/// How a setting with a single value is read and printed, in a model of type `T`.
pub(super) trait ValueForm<T> {
    fn read(&self, reader: &mut Reader<'_>, value: &Value, model: &mut T);
    /// Formats the value. Returns `None` if the value is the default or is not set.
    fn show(&self, model: &mut T, default: &mut T) -> Option<String>;
}

/// A setting whose value is one of several keywords, and the field that it sets.
pub(super) struct Words<T, V: 'static>(pub(super) &'static [(V, Name)], pub(super) fn(&mut T) -> &mut V);

impl<T, V: Copy + PartialEq> ValueForm<T> for Words<T, V> {
    fn read(&self, reader: &mut Reader<'_>, value: &Value, model: &mut T) {
        if let Some(word) = reader.word(value, self.0) {
            *(self.1)(model) = word;
        }
    }

    fn show(&self, model: &mut T, default: &mut T) -> Option<String> {
        let chosen = *(self.1)(model);
        (chosen != *(self.1)(default)).then(|| quote(word_of(self.0, &chosen)))
    }
}

/// Returns the keyword for `value`, which must be in the list.
pub(super) fn word_of<V: PartialEq>(words: &[(V, Name)], value: &V) -> Name {
    words.iter().find(|(known, _)| known == value).map_or("", |(_, word)| word)
}

/// A setting whose value has a parser, and the field that it sets.
pub(super) struct Parsed<T, V> {
    pub(super) read: fn(&mut Reader<'_>, &Value) -> Option<V>,
    /// Formats the value.
    pub(super) show: fn(&V) -> String,
    pub(super) field: fn(&mut T) -> &mut V,
}

impl<T, V: PartialEq> ValueForm<T> for Parsed<T, V> {
    fn read(&self, reader: &mut Reader<'_>, value: &Value, model: &mut T) {
        if let Some(parsed) = (self.read)(reader, value) {
            *(self.field)(model) = parsed;
        }
    }

    fn show(&self, model: &mut T, default: &mut T) -> Option<String> {
        let value = (self.field)(model);
        (value != (self.field)(default)).then(|| (self.show)(value))
    }
}

/// How a setting with several values or a block is read and printed, in a model of type `T`.
pub(super) trait NodeForm<T> {
    /// The names of the properties that have rows.
    fn properties(&self) -> Vec<Name> {
        Vec::new()
    }

    /// Reads a setting, whose shape has already been checked.
    fn read(&self, reader: &mut Reader<'_>, node: &Node, shape: &Shape, model: &mut T);
    fn write(&self, writer: &mut SettingWriter, name: Name, model: &mut T, default: &mut T);
}

/// A setting that is a list without duplicates. The fields are the words for an entry in messages about duplicates, the
/// functions that read and format an entry, and the field that the setting sets. If the setting has the property `off`,
/// it must either be off or have entries.
pub(super) struct List<T, I>(
    pub(super) &'static str,
    pub(super) fn(&mut Reader<'_>, &Value) -> Option<I>,
    pub(super) fn(&I) -> String,
    pub(super) fn(&mut T) -> &mut Vec<I>,
);

impl<T, I: PartialEq> NodeForm<T> for List<T, I> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, shape: &Shape, model: &mut T) {
        let off = is_off(reader, node, shape);
        *(self.3)(model) = if off { Vec::new() } else { reader.list(&node.arguments, self.0, self.1) };
    }

    fn write(&self, writer: &mut SettingWriter, name: Name, model: &mut T, default: &mut T) {
        let list = (self.3)(model);
        if list != (self.3)(default) {
            writer.list_or_off(name, &list.iter().map(self.2).collect::<Vec<_>>());
        }
    }
}

/// A setting that is a list of names without duplicates, compared case-insensitively. The fields are the function that
/// reads a name, and the field that the setting sets.
pub(super) struct Names<T>(
    pub(super) fn(&mut Reader<'_>, &Value) -> Option<String>,
    pub(super) fn(&mut T) -> &mut Vec<String>,
);

impl<T> NodeForm<T> for Names<T> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, shape: &Shape, model: &mut T) {
        *(self.1)(model) = if is_off(reader, node, shape) { Vec::new() } else { reader.names(&node.arguments, self.0) };
    }

    fn write(&self, writer: &mut SettingWriter, name: Name, model: &mut T, default: &mut T) {
        let names = (self.1)(model);
        if names != (self.1)(default) {
            writer.list_or_off(name, names);
        }
    }
}

/// The properties and the block of a setting, for a model of type `T`.
pub(super) struct Group<T: 'static> {
    pub(super) shape: Shape,
    pub(super) properties: &'static [Setting<T>],
    pub(super) block: &'static [Setting<T>],
}

impl<T: Clone> Group<T> {
    pub(super) fn read(&self, reader: &mut Reader<'_>, node: &Node, model: &mut T) {
        self.shape.check(node, &names(self.properties), reader.report);
        self.read_parts(reader, node, model);
    }

    /// Reads the properties and the block. The shape has already been checked.
    pub(super) fn read_parts(&self, reader: &mut Reader<'_>, node: &Node, model: &mut T) {
        read_properties(reader, node, self.properties, model);
        if !self.block.is_empty() {
            read_block(reader, node, self.block, model);
        }
    }

    /// Prints the parts that differ from `default`, and ends the setting, which the caller has begun.
    pub(super) fn write(&self, writer: &mut SettingWriter, model: &T, default: &T) {
        write_properties(writer, self.properties, model, default);
        writer.block(|writer| write_block(writer, self.block, model, default));
    }
}

/// A setting that is a [`Group`], and the field that it sets.
pub(super) struct Inner<T, U: 'static>(pub(super) &'static Group<U>, pub(super) fn(&mut T) -> &mut U);

impl<T, U: Clone + PartialEq> NodeForm<T> for Inner<T, U> {
    fn properties(&self) -> Vec<Name> {
        names(self.0.properties)
    }

    fn read(&self, reader: &mut Reader<'_>, node: &Node, _: &Shape, model: &mut T) {
        self.0.read_parts(reader, node, (self.1)(model));
    }

    fn write(&self, writer: &mut SettingWriter, name: Name, model: &mut T, default: &mut T) {
        let (model, default) = ((self.1)(model), (self.1)(default));
        if model != default {
            self.0.write(writer.begin(name), model, default);
        }
    }
}

/// The longest timeout, in milliseconds: a day.
pub(super) const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// The bounds of a timeout, in milliseconds.
pub(super) const TIMEOUT_MS: RangeInclusive<u64> = 1..=TIMEOUT_MS_MAX;

/// The longest lifetime, in milliseconds: a year. RFC 9111 allows longer lifetimes, but no site needs them.
pub(super) const LIFETIME_MS_MAX: u64 = 366 * 86_400_000;

impl<T> Setting<T> {
    const fn new(name: Name, shape: Shape, form: Form<T>) -> Self {
        Self { name, shape, form, repeats: false }
    }

    pub(super) const fn flag(name: Name, example: Name, field: fn(&mut T) -> &mut bool) -> Self {
        Self::new(name, Shape::value(example), Form::Flag(field))
    }

    const fn whole(name: Name, example: Name, unit: Unit, bounds: Bounds, field: WholeField<T>) -> Self {
        Self::new(name, Shape::value(example), Form::Whole(unit, bounds, field))
    }

    pub(super) const fn number(name: Name, example: Name, bounds: Bounds, field: WholeField<T>) -> Self {
        Self::whole(name, example, NUMBER, bounds, field)
    }

    /// A size in bytes, written with a unit.
    pub(super) const fn size(name: Name, example: Name, bounds: Bounds, field: WholeField<T>) -> Self {
        Self::whole(name, example, SIZE, bounds, field)
    }

    /// A duration in milliseconds, written with a unit.
    pub(super) const fn duration(name: Name, example: Name, bounds_ms: Bounds, field: WholeField<T>) -> Self {
        Self::whole(name, example, DURATION, bounds_ms, field)
    }

    /// A duration in microseconds, written with a unit.
    pub(super) const fn duration_us(name: Name, example: Name, bounds_us: Bounds, field: WholeField<T>) -> Self {
        Self::whole(name, example, DURATION_US, bounds_us, field)
    }

    /// A lifetime in whole seconds, up to a year, written with a unit. Caches use no finer resolution (RFC 9111
    /// §1.2.2).
    pub(super) const fn lifetime(name: Name, example: Name, field: WholeField<T>) -> Self {
        Self::whole(name, example, LIFETIME, 0..=LIFETIME_MS_MAX, field)
    }

    pub(super) const fn path(name: Name, example: Name, field: fn(&mut T) -> &mut Option<PathBuf>) -> Self {
        Self::new(name, Shape::value(example), Form::Path(field))
    }

    pub(super) const fn value(name: Name, example: Name, form: &'static dyn ValueForm<T>) -> Self {
        Self::new(name, Shape::value(example), Form::Value(form))
    }

    pub(super) const fn list(name: Name, shape: Shape, form: &'static dyn NodeForm<T>) -> Self {
        Self::new(name, shape, Form::Node(form))
    }

    pub(super) const fn group<U: Clone + PartialEq>(name: Name, inner: &'static Inner<T, U>) -> Self {
        Self::new(name, inner.0.shape, Form::Node(inner))
    }

    pub(super) const fn custom(name: Name, shape: Shape, read: Read<T>, write: Write<T>) -> Self {
        Self::new(name, shape, Form::Custom { read, write })
    }

    /// A setting that is printed by other code.
    pub(super) const fn read_only(name: Name, shape: Shape, read: Read<T>) -> Self {
        Self::custom(name, shape, read, |_, _, _| {})
    }

    /// Allows the setting to occur more than once.
    pub(super) const fn repeated(self) -> Self {
        Self { repeats: true, ..self }
    }

    fn read(&self, reader: &mut Reader<'_>, node: &Node, model: &mut T) {
        let properties = if let Form::Node(form) = &self.form { form.properties() } else { Vec::new() };
        let is_complete = self.shape.is_any() || self.shape.check(node, &properties, reader.report);
        match &self.form {
            _ if !is_complete => {}
            Form::Custom { read, .. } => read(reader, node, model),
            Form::Node(form) => form.read(reader, node, &self.shape, model),
            _ => self.read_value(reader, &node.arguments[0], model),
        }
    }

    fn read_value(&self, reader: &mut Reader<'_>, value: &Value, model: &mut T) {
        match &self.form {
            Form::Flag(field) => {
                if let Some(flag) = reader.flag(value) {
                    *field(model) = flag;
                }
            }
            Form::Whole(unit, bounds, field) => {
                if let Some(number) = (unit.read)(reader, value, bounds.clone()) {
                    field(model).set(number);
                }
            }
            Form::Path(field) => {
                if let Some(path) = reader.path(value) {
                    *field(model) = Some(path);
                }
            }
            Form::Value(form) => form.read(reader, value, model),
            Form::Node(_) | Form::Custom { .. } => {}
        }
    }

    /// Formats the value. Returns `None` if the value is the default or is not set.
    fn show(&self, model: &mut T, default: &mut T) -> Option<String> {
        match &self.form {
            Form::Flag(field) => {
                let flag = *field(model);
                (flag != *field(default)).then(|| format!("#{flag}"))
            }
            Form::Whole(unit, _, field) => {
                let number = field(model).get();
                number.filter(|_| number != field(default).get()).map(unit.show)
            }
            Form::Path(field) => field(model).as_ref().map(|set| quote(&path(set))),
            Form::Value(form) => form.show(model, default),
            Form::Node(_) | Form::Custom { .. } => None,
        }
    }
}

/// Reads a lifetime in seconds. Reports a duration that is not a whole number of seconds.
pub(super) fn lifetime(reader: &mut Reader<'_>, value: &Value) -> Option<u64> {
    let duration_ms = reader.duration(value, 0..=LIFETIME_MS_MAX)?;
    if !duration_ms.is_multiple_of(1_000) {
        let draft = reader.report.add(Code::DurationBad, value.span, "a lifetime must be a whole number of seconds");
        draft.label(format!("write \"{}s\"", duration_ms.div_ceil(1_000)));
        return None;
    }
    Some(duration_ms / 1_000)
}

/// Returns the names of all settings in `rows`.
pub(super) fn names<T>(rows: &[Setting<T>]) -> Vec<&'static str> {
    rows.iter().map(|row| row.name).collect()
}

/// Reads the setting `node` using the row with its name. Returns `false` if there is no such row.
pub(super) fn read_row<'n, T>(
    reader: &mut Reader<'_>,
    node: &'n Node,
    rows: &[Setting<T>],
    seen: &mut SeenSettings<'n>,
    model: &mut T,
) -> bool {
    let Some(row) = rows.iter().find(|row| row.name == node.name) else { return false };
    if row.repeats || seen.first(node, reader.report) {
        row.read(reader, node, model);
    }
    true
}

/// Reads the settings in the block of `node`, using `rows`.
pub(super) fn read_block<T>(reader: &mut Reader<'_>, node: &Node, rows: &[Setting<T>], model: &mut T) {
    let mut seen = SeenSettings::default();
    for child in node.children.iter().flatten() {
        if !read_row(reader, child, rows, &mut seen, model) {
            reader.unknown(child, &names(rows));
        }
    }
}

/// Reads those properties of `node` that have a row in `rows`. The caller reads the other properties.
pub(super) fn read_properties<T>(reader: &mut Reader<'_>, node: &Node, rows: &[Setting<T>], model: &mut T) {
    for row in rows {
        if let Some(property) = property(node, row.name) {
            row.read_value(reader, &property.value, model);
        }
    }
}

/// Prints the settings that differ from `default`, one per line.
pub(super) fn write_block<T: Clone>(writer: &mut SettingWriter, rows: &[Setting<T>], model: &T, default: &T) {
    let (mut model, mut default) = (model.clone(), default.clone());
    for row in rows {
        match &row.form {
            Form::Custom { write, .. } => write(writer, row.name, &model),
            Form::Node(form) => form.write(writer, row.name, &mut model, &mut default),
            _ => {
                if let Some(shown) = row.show(&mut model, &mut default) {
                    writer.begin(row.name).raw(&shown).end();
                }
            }
        }
    }
}

/// Prints the properties that differ from `default`. The caller has begun the setting.
fn write_properties<T: Clone>(writer: &mut SettingWriter, rows: &[Setting<T>], model: &T, default: &T) {
    let (mut model, mut default) = (model.clone(), default.clone());
    for row in rows {
        if let Some(shown) = row.show(&mut model, &mut default) {
            writer.raw_property(row.name, &shown);
        }
    }
}
