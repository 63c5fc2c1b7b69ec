//! Settings as rows of a table. A row says once how a setting is called and written, within which bounds, and where it
//! stands in the model; reading, printing, and what is allowed where follow from the rows.

use super::Reader;
use super::shape::{SeenSettings, Shape};
use crate::code::Code;
use crate::encode::{SettingWriter, path};
use crate::syntax::{Node, Value};
use flatout_units::quantity::{MICROSECOND, MILLISECOND, exact_duration, exact_size};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// One setting of a block whose model is `T`.
pub(crate) struct Setting<T: 'static> {
    pub(super) name: &'static str,
    shape: Shape,
    form: Form<T>,
    /// True if it may be given more than once.
    repeats: bool,
}

/// How a setting is read and printed, and which field it sets. A row of a simple form is printed only where it differs
/// from the default.
enum Form<T: 'static> {
    /// `#true` or `#false`.
    Flag(fn(&mut T) -> &mut bool),
    /// A whole number within bounds.
    Number(RangeInclusive<u64>, WholeField<T>),
    /// Bytes, with a unit.
    Size(RangeInclusive<u64>, WholeField<T>),
    /// Milliseconds, with a unit.
    Duration(RangeInclusive<u64>, WholeField<T>),
    /// Microseconds, with a unit.
    DurationUs(RangeInclusive<u64>, WholeField<T>),
    /// Whole seconds up to a year, with a unit: caches count no finer (RFC 9111 §1.2.2).
    Lifetime(WholeField<T>),
    /// A path, relative to the file in which it stands.
    Path(fn(&mut T) -> &mut Option<PathBuf>),
    /// Anything else.
    Custom { read: Read<T>, write: Write<T> },
}

/// Reads a node whose shape has been checked.
pub(crate) type Read<T> = fn(&mut Reader<'_>, &Node, &mut T);

/// Prints the setting of this name, and nothing where it has its default.
pub(crate) type Write<T> = fn(&mut SettingWriter, &'static str, &T);

/// The field of a model that holds a whole number.
pub(crate) type WholeField<T> = fn(&mut T) -> &mut dyn Whole;

/// A field with a whole number, perhaps one that may be left out.
pub(crate) trait Whole {
    fn get(&self) -> Option<u64>;
    /// `value` lies within the bounds of the row, which fit the field.
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

/// The longest lifetime: a year. RFC 9111 allows longer ones; no site needs them.
pub(super) const LIFETIME_MS_MAX: u64 = 366 * 86_400_000;

impl<T> Setting<T> {
    const fn new(name: &'static str, shape: Shape, form: Form<T>) -> Self {
        Self { name, shape, form, repeats: false }
    }

    pub(super) const fn flag(name: &'static str, example: &'static str, field: fn(&mut T) -> &mut bool) -> Self {
        Self::new(name, Shape::value(example), Form::Flag(field))
    }

    pub(super) const fn number(
        name: &'static str,
        example: &'static str,
        bounds: RangeInclusive<u64>,
        field: WholeField<T>,
    ) -> Self {
        Self::new(name, Shape::value(example), Form::Number(bounds, field))
    }

    pub(super) const fn size(
        name: &'static str,
        example: &'static str,
        bounds: RangeInclusive<u64>,
        field: WholeField<T>,
    ) -> Self {
        Self::new(name, Shape::value(example), Form::Size(bounds, field))
    }

    pub(super) const fn duration(
        name: &'static str,
        example: &'static str,
        bounds_ms: RangeInclusive<u64>,
        field: WholeField<T>,
    ) -> Self {
        Self::new(name, Shape::value(example), Form::Duration(bounds_ms, field))
    }

    pub(super) const fn duration_us(
        name: &'static str,
        example: &'static str,
        bounds_us: RangeInclusive<u64>,
        field: WholeField<T>,
    ) -> Self {
        Self::new(name, Shape::value(example), Form::DurationUs(bounds_us, field))
    }

    pub(super) const fn lifetime(name: &'static str, example: &'static str, field: WholeField<T>) -> Self {
        Self::new(name, Shape::value(example), Form::Lifetime(field))
    }

    pub(super) const fn path(
        name: &'static str,
        example: &'static str,
        field: fn(&mut T) -> &mut Option<PathBuf>,
    ) -> Self {
        Self::new(name, Shape::value(example), Form::Path(field))
    }

    pub(super) const fn custom(name: &'static str, shape: Shape, read: Read<T>, write: Write<T>) -> Self {
        Self::new(name, shape, Form::Custom { read, write })
    }

    /// A setting whose reader checks the shape itself.
    pub(super) const fn any(name: &'static str, read: Read<T>, write: Write<T>) -> Self {
        Self::new(name, Shape::any(), Form::Custom { read, write })
    }

    /// The same setting, which may be given more than once.
    pub(super) const fn repeated(self) -> Self {
        Self { repeats: true, ..self }
    }

    pub(super) fn read(&self, reader: &mut Reader<'_>, node: &Node, model: &mut T) {
        let is_complete = self.shape.is_any() || reader.shape(node, &self.shape);
        if let Form::Custom { read, .. } = self.form {
            if is_complete {
                read(reader, node, model);
            }
        } else if let Some(value) = node.arguments.first() {
            self.read_value(reader, value, model);
        }
    }

    fn read_value(&self, reader: &mut Reader<'_>, value: &Value, model: &mut T) {
        let (number, field) = match &self.form {
            Form::Flag(field) => {
                if let Some(flag) = reader.flag(value) {
                    *field(model) = flag;
                }
                return;
            }
            Form::Path(field) => {
                if let Some(path) = reader.path(value) {
                    *field(model) = Some(path);
                }
                return;
            }
            Form::Custom { .. } => return,
            Form::Number(bounds, field) => (reader.number(value, bounds.clone()), field),
            Form::Size(bounds, field) => (reader.size(value, bounds.clone()), field),
            Form::Duration(bounds, field) => (reader.duration(value, bounds.clone()), field),
            Form::DurationUs(bounds, field) => (reader.duration_us(value, bounds.clone()), field),
            Form::Lifetime(field) => (lifetime(reader, value), field),
        };
        if let Some(number) = number {
            field(model).set(number);
        }
    }

    /// The value as it is printed; `None`: it is the default, or there is none.
    fn show(&self, model: &mut T, default: &mut T) -> Option<Shown> {
        let (field, show): (_, fn(u64) -> Shown) = match &self.form {
            Form::Flag(field) => {
                let flag = *field(model);
                let text = if flag { "#true" } else { "#false" };
                return (flag != *field(default)).then(|| Shown::Raw(text.to_owned()));
            }
            Form::Path(field) => return field(model).as_ref().map(|set| Shown::Text(path(set))),
            Form::Custom { .. } => return None,
            Form::Number(_, field) => (field, |number| Shown::Raw(number.to_string())),
            Form::Size(_, field) => (field, |bytes| Shown::Text(exact_size(bytes))),
            Form::Duration(_, field) => (field, |duration_ms| Shown::Text(exact_duration(duration_ms, MILLISECOND))),
            Form::DurationUs(_, field) => (field, |duration_us| Shown::Text(exact_duration(duration_us, MICROSECOND))),
            Form::Lifetime(field) => (field, |seconds| Shown::Text(exact_duration(seconds, 1_000 * MILLISECOND))),
        };
        let number = field(model).get();
        if number == field(default).get() { None } else { number.map(show) }
    }
}

/// A value as it stands in a configuration.
enum Shown {
    Raw(String),
    Text(String),
}

/// Seconds. A duration that is not whole seconds is reported.
pub(super) fn lifetime(reader: &mut Reader<'_>, value: &Value) -> Option<u64> {
    let duration_ms = reader.duration(value, 0..=LIFETIME_MS_MAX)?;
    if !duration_ms.is_multiple_of(1_000) {
        let draft = reader.report.add(Code::DurationBad, value.span, "a lifetime is counted in whole seconds");
        draft.label(format!("write \"{}s\"", duration_ms.div_ceil(1_000)));
        return None;
    }
    Some(duration_ms / 1_000)
}

/// The names of `rows`.
pub(super) fn names<T>(rows: &[Setting<T>]) -> Vec<&'static str> {
    rows.iter().map(|row| row.name).collect()
}

/// Reads the block of `node` by `rows`.
pub(super) fn read_block<T>(reader: &mut Reader<'_>, node: &Node, rows: &[Setting<T>], model: &mut T) {
    let mut seen = SeenSettings::default();
    for child in node.children.iter().flatten() {
        match rows.iter().find(|row| row.name == child.name) {
            None => reader.unknown(child, &names(rows)),
            Some(row) if row.repeats || reader.first(&mut seen, child) => row.read(reader, child, model),
            Some(_) => {}
        }
    }
}

/// Reads those properties of `node` that are among `rows`; others are the caller's.
pub(super) fn read_properties<T>(reader: &mut Reader<'_>, node: &Node, rows: &[Setting<T>], model: &mut T) {
    for row in rows {
        if let Some(property) = super::shape::property(node, row.name) {
            row.read_value(reader, &property.value, model);
        }
    }
}

/// Prints the settings that differ from `default`, one a line.
pub(super) fn write_block<T: Clone>(writer: &mut SettingWriter, rows: &[Setting<T>], model: &T, default: &T) {
    let (mut model, mut default) = (model.clone(), default.clone());
    for row in rows {
        if let Form::Custom { write, .. } = row.form {
            write(writer, row.name, &model);
        } else if let Some(shown) = row.show(&mut model, &mut default) {
            match shown {
                Shown::Raw(value) => writer.begin(row.name).raw(&value),
                Shown::Text(text) => writer.begin(row.name).text(&text),
            }
            .end();
        }
    }
}

/// Prints the properties that differ from `default`, behind the setting that was begun.
pub(super) fn write_properties<T: Clone>(writer: &mut SettingWriter, rows: &[Setting<T>], model: &T, default: &T) {
    let (mut model, mut default) = (model.clone(), default.clone());
    for row in rows {
        match row.show(&mut model, &mut default) {
            Some(Shown::Raw(value)) => writer.raw_property(row.name, &value),
            Some(Shown::Text(text)) => writer.property(row.name, &text),
            None => continue,
        };
    }
}
