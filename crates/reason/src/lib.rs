//! Tables of named reasons. Every refusal, closed connection, failure and outcome in this workspace is a row of such a
//! table.
//!
//! A row contains the variant of an enum, its stable name for logs and counters, and a sentence with its meaning. Some
//! tables have further columns, such as the status of the response. [`reasons!`] creates the enum from the rows. An
//! [`Outcome`] is a row of any table.
//!
//! [`defaults!`] creates a struct from rows with the name, type and default of each field.
//!
//! By design, this crate knows nothing of what the tables are about, and depends on no other crate of the workspace.

/// Creates an enum from a table: the variants, documented by their sentences, and a constant function for each column.
///
/// The heading names the columns in the order of the rows, each of which ends in a semicolon. Most tables have a `name`
/// and a `text`. There may be one or two columns with a type between them, or one column after them. A table without a
/// `name` or without a `text` cannot be converted to an [`Outcome`].
///
/// ```
/// flatout_reason::reasons! {
///     /// The reason a door did not open.
///     pub enum Shut {
///         name,
///         /// The status of the response.
///         status: u16,
///         text,
///     }
///     Locked, "locked", 403, "Nobody has the key.";
///     Gone, "gone", 404, "There is no door.";
/// }
///
/// assert_eq!(Shut::NAMES, ["locked", "gone"]);
/// assert_eq!((Shut::Gone.name(), Shut::Gone.status(), Shut::Gone.text()), ("gone", 404, "There is no door."));
/// ```
///
/// The enum is one byte, which is the index of its row in `ALL`, `NAMES` and `TEXTS`.
#[macro_export]
macro_rules! reasons {
    (
        $(#[$about:meta])* $vis:vis enum $table:ident { name, }
        $($(#[$note:meta])* $variant:ident, $name:literal;)+
    ) => {
        $crate::reasons! { @rows $(#[$about])* $vis $table $($(#[$note])* $variant;)+ }
        $crate::reasons! { @names $vis $table $($variant, $name;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident { name, $(#[$what:meta])* $column:ident: $type:ty, }
        $($(#[$note:meta])* $variant:ident, $name:literal, $cell:expr;)+
    ) => {
        $crate::reasons! { @rows $(#[$about])* pub $table $($(#[$note])* #[doc = $name] $variant;)+ }
        $crate::reasons! { @names pub $table $($variant, $name;)+ }
        $crate::reasons! { @column $table $(#[$what])* $column: $type; $($variant, $cell;)+ }
    };
    (
        $(#[$about:meta])* $vis:vis enum $table:ident { text, }
        $($(#[$note:meta])* $variant:ident, $text:literal;)+
    ) => {
        $crate::reasons! { @rows $(#[$about])* $vis $table $($(#[$note])* #[doc = $text] $variant;)+ }
        $crate::reasons! { @texts $vis $table $($variant, $text;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident { name, text, }
        $($(#[$note:meta])* $variant:ident $(: $mark:ident)?, $name:literal, $text:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant $(: $mark)?, $name, $text;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident { name, $(#[$what:meta])* $column:ident: $type:ty, text, }
        $($(#[$note:meta])* $variant:ident $(: $mark:ident)?, $name:literal, $cell:expr, $text:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant $(: $mark)?, $name, $text;)+ }
        $crate::reasons! { @column $table $(#[$what])* $column: $type; $($variant, $cell;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident {
            name,
            $(#[$what:meta])* $column:ident: $type:ty,
            $(#[$what_else:meta])* $second:ident: $second_type:ty,
            text,
        }
        $(
            $(#[$note:meta])* $variant:ident $(: $mark:ident)?,
            $name:literal, $cell:literal, $second_cell:literal, $text:literal;
        )+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant $(: $mark)?, $name, $text;)+ }
        $crate::reasons! { @column $table $(#[$what])* $column: $type; $($variant, $cell;)+ }
        $crate::reasons! { @column $table $(#[$what_else])* $second: $second_type; $($variant, $second_cell;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident { name, text, $(#[$what:meta])* $column:ident: $type:ty, }
        $($(#[$note:meta])* $variant:ident, $name:literal, $text:literal, $cell:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant, $name, $text;)+ }
        $crate::reasons! { @column $table $(#[$what])* $column: $type; $($variant, $cell;)+ }
    };
    (
        @table $(#[$about:meta])* $table:ident
        $($(#[$note:meta])* $variant:ident $(: $mark:ident)?, $name:literal, $text:literal;)+
    ) => {
        $crate::reasons! { @rows $(#[$about])* pub $table $($(#[$note])* #[doc = $text] $variant;)+ }
        $crate::reasons! { @names pub $table $($variant, $name;)+ }
        $crate::reasons! { @texts pub $table $($variant, $text;)+ }

        impl $table {
            /// The names and meanings of all variants, for logs, counters and documentation.
            pub const TABLE: &'static $crate::Table = {
                static TABLE: $crate::Table = $crate::Table {
                    names: $table::NAMES,
                    texts: $table::TEXTS,
                    marks: &[$(concat!($(stringify!($mark))?),)+],
                };
                &TABLE
            };
        }

        impl From<$table> for $crate::Outcome {
            fn from(row: $table) -> Self {
                Self::new($table::TABLE, row as u8)
            }
        }
    };
    (@rows $(#[$about:meta])* $vis:vis $table:ident $($(#[$note:meta])* $variant:ident;)+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        $vis enum $table {
            $($(#[$note])* $variant,)+
        }

        #[allow(dead_code)] // not every table is listed
        impl $table {
            /// All variants, in the order of the table.
            $vis const ALL: &'static [Self] = &[$(Self::$variant,)+];
        }
    };
    (@names $vis:vis $table:ident $($variant:ident, $name:literal;)+) => {
        #[allow(dead_code)] // not every table is listed
        impl $table {
            /// The names of all variants, in the order of the table.
            $vis const NAMES: &'static [&'static str] = &[$($name,)+];

            /// Returns the stable name, as shown in logs and counters.
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
    (@texts $vis:vis $table:ident $($variant:ident, $text:literal;)+) => {
        #[allow(dead_code)] // not every table is listed
        impl $table {
            /// The meanings of all variants, in the order of the table.
            $vis const TEXTS: &'static [&'static str] = &[$($text,)+];

            /// Returns the meaning, in one sentence or a few.
            $vis const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
    (@column $table:ident $(#[$what:meta])* $column:ident: $type:ty; $($variant:ident, $cell:expr;)+) => {
        impl $table {
            $(#[$what])*
            pub const fn $column(self) -> $type {
                match self { $(Self::$variant => $cell,)+ }
            }
        }
    };
}

/// Creates a struct from a table, with an implementation of `Default`. A field without a value in the table has the
/// default of its type.
///
/// ```
/// flatout_reason::defaults! {
///     /// Limits of a queue.
///     #[derive(Debug, PartialEq)]
///     pub struct QueueLimits {
///         /// Maximum number of entries.
///         pub entries_max: usize = 1_000,
///         /// Name of the queue.
///         pub name: String,
///     }
/// }
///
/// assert_eq!(QueueLimits::default(), QueueLimits { entries_max: 1_000, name: String::new() });
/// ```
#[macro_export]
macro_rules! defaults {
    (
        $(#[$about:meta])* $vis:vis struct $table:ident {
            $($(#[$note:meta])* $field_vis:vis $field:ident: $type:ty $(= $default:expr)?,)+
        }
    ) => {
        $(#[$about])*
        $vis struct $table {
            $($(#[$note])* $field_vis $field: $type,)+
        }

        impl Default for $table {
            fn default() -> Self {
                Self { $($field: $crate::defaults!(@value $type $(, $default)?),)+ }
            }
        }
    };
    (@value $type:ty, $default:expr) => { $default };
    (@value $type:ty) => { <$type as Default>::default() };
}

/// The names and meanings of a table's rows.
#[derive(Debug)]
pub struct Table {
    /// The names, one per variant, in the order of the table.
    pub names: &'static [&'static str],
    /// The meanings, in the same order.
    pub texts: &'static [&'static str],
    /// The marks, in the same order; empty for a row without one.
    pub marks: &'static [&'static str],
}

impl Table {
    /// Returns the name and the mark of each row.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.names.iter().zip(self.marks).map(|(name, mark)| (*name, *mark))
    }
}

/// A row of any table.
#[derive(Clone, Copy)]
pub struct Outcome {
    table: &'static Table,
    row: u8,
}

impl Outcome {
    /// An outcome that belongs to no table. Its name is `-`.
    pub const NONE: Self = {
        static NONE: Table = Table { names: &["-"], texts: &[""], marks: &[""] };
        Self::new(&NONE, 0)
    };

    /// Creates the outcome for row number `row` of `table`, from 0.
    pub const fn new(table: &'static Table, row: u8) -> Self {
        Self { table, row }
    }

    /// Returns the stable name of the row.
    pub fn name(self) -> &'static str {
        self.table.names.get(usize::from(self.row)).copied().unwrap_or("-")
    }

    /// Returns the meaning of the row.
    pub fn text(self) -> &'static str {
        self.table.texts.get(usize::from(self.row)).copied().unwrap_or("")
    }

    /// Returns the number of the row if the rows of `tables` are numbered in order, from 0. Returns `None` if the row
    /// is in none of these tables.
    #[inline]
    pub fn index_in(self, tables: &[&'static Table]) -> Option<usize> {
        let mut before = 0;
        for table in tables {
            if std::ptr::eq(*table, self.table) {
                return Some(before + usize::from(self.row));
            }
            before += table.names.len();
        }
        None
    }
}

impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.table, other.table) && self.row == other.row
    }
}

impl Eq for Outcome {}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
#[allow(unreachable_pub, dead_code)] // tests do not use every function of these tables
mod tests {
    use super::Outcome;

    crate::reasons! {
        /// A table with only these two columns.
        #[derive(PartialOrd, Ord)]
        pub enum Plain { name, text, }
        First, "first", "The first.";
        /// A doc comment on a row.
        Second: late, "second", "The second.";
    }

    crate::reasons! {
        /// A table with two further columns.
        pub enum Wide {
            name,
            /// A column with a number.
            status: u16,
            /// A column with a boolean.
            is_ours: bool,
            text,
        }
        Third: late, "third", 503, true, "The third.";
        Fourth, "fourth", 400, false, "The fourth.";
    }

    crate::reasons! {
        /// A table with a column after the text.
        pub enum Told {
            name,
            text,
            /// The remedy.
            change: &'static str,
        }
        Fifth, "fifth", "The fifth.", "Take another.";
    }

    #[test]
    fn each_column_is_told_by_its_row() {
        assert_eq!(
            (Plain::ALL, Plain::NAMES),
            ([Plain::First, Plain::Second].as_slice(), ["first", "second"].as_slice())
        );
        assert_eq!((Plain::Second.name(), Plain::Second.text()), ("second", "The second."));
        assert!(Plain::First < Plain::Second);
        for (index, row) in Wide::ALL.iter().enumerate() {
            assert_eq!((*row as usize, row.name(), row.text()), (index, Wide::NAMES[index], Wide::TEXTS[index]));
        }
        assert_eq!((Wide::Third.status(), Wide::Third.is_ours()), (503, true));
        assert_eq!((Wide::Fourth.status(), Wide::Fourth.is_ours()), (400, false));
        assert_eq!((Told::Fifth.text(), Told::Fifth.change()), ("The fifth.", "Take another."));
        assert_eq!(size_of::<Wide>(), 1);
        let rows: Vec<_> = Plain::TABLE.rows().chain(Wide::TABLE.rows()).collect();
        assert_eq!(rows, [("first", ""), ("second", "late"), ("third", "late"), ("fourth", "")]);
    }

    #[test]
    fn rows_of_all_tables_are_numbered_in_their_order() {
        let tables = [Plain::TABLE, Told::TABLE, Wide::TABLE];
        let outcomes: [Outcome; 4] =
            [Plain::First.into(), Plain::Second.into(), Told::Fifth.into(), Wide::Third.into()];
        assert_eq!(outcomes.map(|outcome| outcome.index_in(&tables)), [0, 1, 2, 3].map(Some));
        assert_eq!(outcomes.map(Outcome::name), ["first", "second", "fifth", "third"]);
        assert_eq!((outcomes[3].text(), outcomes[3].index_in(&tables[..2])), ("The third.", None));
        assert!(outcomes[0] == Plain::First.into() && outcomes[0] != outcomes[1] && outcomes[0] != outcomes[3]);
        assert_eq!((Outcome::NONE.name(), Outcome::NONE.text(), Outcome::NONE.index_in(&tables)), ("-", "", None));
    }
}
