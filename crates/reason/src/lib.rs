//! Tables of named endings: every refusal, close, failure and outcome of this workspace is one row of one of them.
//!
//! A row gives the variant of an enum, its stable name for logs and counters, and the sentence that says what it means;
//! some tables have a column more, the status that is answered for one. [`reasons!`] makes the enum of them. An
//! [`Outcome`] is a row of any table.
//!
//! Absent by design: what any of the tables is about. It depends on no other crate of the workspace.

/// Makes an enum of a table: its variants, documented by their sentences, and a constant function for each column.
///
/// The heading names the columns in the order of the rows, each of which ends in a semicolon. Every table has a `name`
/// and a `text`; between the two may stand one or two columns with a type, or one behind them.
///
/// ```
/// flatout_reason::reasons! {
///     /// Why a door did not open.
///     pub enum Shut {
///         name,
///         /// The status of the answer.
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
        $(#[$about:meta])* pub enum $table:ident { name, text, }
        $($(#[$note:meta])* $variant:ident, $name:literal, $text:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant, $name, $text;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident { name, $(#[$what:meta])* $column:ident: $type:ty, text, }
        $($(#[$note:meta])* $variant:ident, $name:literal, $cell:literal, $text:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant, $name, $text;)+ }
        $crate::reasons! { @column $table $(#[$what])* $column: $type; $($variant, $cell;)+ }
    };
    (
        $(#[$about:meta])* pub enum $table:ident {
            name,
            $(#[$what:meta])* $column:ident: $type:ty,
            $(#[$what_else:meta])* $second:ident: $second_type:ty,
            text,
        }
        $($(#[$note:meta])* $variant:ident, $name:literal, $cell:literal, $second_cell:literal, $text:literal;)+
    ) => {
        $crate::reasons! { @table $(#[$about])* $table $($(#[$note])* $variant, $name, $text;)+ }
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
        $($(#[$note:meta])* $variant:ident, $name:literal, $text:literal;)+
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $table {
            $($(#[$note])* #[doc = $text] $variant,)+
        }

        impl $table {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The names, in the order of the table.
            pub const NAMES: &'static [&'static str] = &[$($name,)+];

            /// The meanings, in the order of the table.
            pub const TEXTS: &'static [&'static str] = &[$($text,)+];

            /// The table.
            pub const TABLE: &'static $crate::Table = {
                static TABLE: $crate::Table = $crate::Table { names: $table::NAMES, texts: $table::TEXTS };
                &TABLE
            };

            /// The stable name, as logs and counters show it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The meaning, in one sentence or a few.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl From<$table> for $crate::Outcome {
            fn from(row: $table) -> Self {
                Self::new($table::TABLE, row as u8)
            }
        }
    };
    (@column $table:ident $(#[$what:meta])* $column:ident: $type:ty; $($variant:ident, $cell:literal;)+) => {
        impl $table {
            $(#[$what])*
            pub const fn $column(self) -> $type {
                match self { $(Self::$variant => $cell,)+ }
            }
        }
    };
}

/// The names and the meanings of a table's rows.
#[derive(Debug)]
pub struct Table {
    /// The names.
    pub names: &'static [&'static str],
    /// The meanings.
    pub texts: &'static [&'static str],
}

/// A row of any table.
#[derive(Clone, Copy)]
pub struct Outcome {
    table: &'static Table,
    row: u8,
}

impl Outcome {
    /// The row of no table.
    pub const NONE: Self = {
        static NONE: Table = Table { names: &["-"], texts: &[""] };
        Self::new(&NONE, 0)
    };

    /// The row number `row` of `table`.
    pub const fn new(table: &'static Table, row: u8) -> Self {
        Self { table, row }
    }

    /// The stable name.
    pub fn name(self) -> &'static str {
        self.table.names.get(usize::from(self.row)).copied().unwrap_or("-")
    }

    /// The meaning.
    pub fn text(self) -> &'static str {
        self.table.texts.get(usize::from(self.row)).copied().unwrap_or("")
    }

    /// The number of the row if the rows of `tables` are numbered in order; `None` if it is in none of them.
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
#[allow(unreachable_pub, dead_code)] // of a table that only a test knows, not everything is asked
mod tests {
    use super::Outcome;

    crate::reasons! {
        /// No column but the two.
        #[derive(PartialOrd, Ord)]
        pub enum Plain { name, text, }
        First, "first", "The first.";
        /// A remark of its own.
        Second, "second", "The second.";
    }

    crate::reasons! {
        /// Two columns more.
        pub enum Wide {
            name,
            /// A number.
            status: u16,
            /// A fact.
            is_ours: bool,
            text,
        }
        Third, "third", 503, true, "The third.";
        Fourth, "fourth", 400, false, "The fourth.";
    }

    crate::reasons! {
        /// One behind the text.
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
