//! How one Rust value is a cell of a column, and back. In: fields of the nouns. Out: Arrow arrays.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int8Type, Int64Type, TimestampMicrosecondType, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, PrimitiveArray, StringArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Fields, TimeUnit};

use crate::{Micros, Provenance, UtcMicros};

/// A type that can stand in a column.
pub(super) trait Cell: Sized {
    /// Whether the column may hold nulls.
    const NULLABLE: bool;

    /// The column's type while in memory.
    fn data_type() -> DataType;

    /// The column of these cells.
    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;

    /// Hands each row's value to `set`. The error says what is wrong with the column.
    fn read(array: &dyn Array, set: impl FnMut(usize, Self)) -> Result<(), String>;
}

fn wrong_type<T: Cell>(array: &dyn Array) -> String {
    format!("has type {}, expected {}", array.data_type(), T::data_type())
}

fn no_nulls(array: &dyn Array) -> Result<(), String> {
    if array.null_count() == 0 { Ok(()) } else { Err("holds nulls, every row needs a value".to_owned()) }
}

/// A plain type and its nullable twin.
macro_rules! primitive {
    ($rust:ty, $arrow:ty, $to:expr, $from:expr) => {
        impl Cell for $rust {
            const NULLABLE: bool = false;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }

            fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
                Arc::new(PrimitiveArray::<$arrow>::from_iter_values(cells.copied().map($to)))
            }

            fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
                let typed = array.as_primitive_opt::<$arrow>().ok_or_else(|| wrong_type::<Self>(array))?;
                no_nulls(array)?;
                typed.values().iter().enumerate().for_each(|(row, value)| set(row, ($from)(*value)));
                Ok(())
            }
        }

        impl Cell for Option<$rust> {
            const NULLABLE: bool = true;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }

            fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
                Arc::new(cells.map(|cell| cell.map($to)).collect::<PrimitiveArray<$arrow>>())
            }

            fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
                let typed = array.as_primitive_opt::<$arrow>().ok_or_else(|| wrong_type::<Self>(array))?;
                if typed.null_count() == 0 {
                    let values = typed.values().iter().enumerate();
                    values.for_each(|(row, value)| set(row, Some(($from)(*value))));
                } else if typed.null_count() < typed.len() {
                    typed.iter().enumerate().for_each(|(row, value)| set(row, value.map($from)));
                } else {
                    (0..typed.len()).for_each(|row| set(row, None));
                }
                Ok(())
            }
        }
    };
}

/// The values of a column, zero where there is none; where there are no nulls nothing is copied.
pub(super) fn plain<A: ArrowPrimitiveType>(array: &dyn Array) -> Result<PrimitiveArray<A>, String> {
    let typed = array
        .as_primitive_opt::<A>()
        .ok_or_else(|| format!("has type {}, expected {}", array.data_type(), A::DATA_TYPE))?;
    if typed.null_count() == 0 {
        return Ok(typed.clone());
    }
    Ok(PrimitiveArray::from_iter_values(typed.iter().map(Option::unwrap_or_default)))
}

primitive!(u64, UInt64Type, |v| v, |v| v);
primitive!(u32, UInt32Type, |v| v, |v| v);
primitive!(u16, UInt16Type, |v| v, |v| v);
primitive!(i64, Int64Type, |v| v, |v| v);
primitive!(f64, Float64Type, |v| v, |v| v);
primitive!(Micros, Int64Type, |v: Micros| v.0, Micros);

impl Cell for Option<UtcMicros> {
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    }

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let array: TimestampMicrosecondArray = cells.map(|cell| cell.map(|at| at.0)).collect();
        Arc::new(array.with_timezone("UTC"))
    }

    fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
        let typed =
            array.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(|| wrong_type::<Self>(array))?;
        typed.iter().enumerate().for_each(|(row, value)| set(row, value.map(UtcMicros)));
        Ok(())
    }
}

impl Cell for bool {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(cells.copied().map(Some).collect::<BooleanArray>())
    }

    fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
        let typed = array.as_boolean_opt().ok_or_else(|| wrong_type::<Self>(array))?;
        no_nulls(array)?;
        (0..typed.len()).for_each(|row| set(row, typed.value(row)));
        Ok(())
    }
}

impl Cell for Option<bool> {
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(cells.copied().collect::<BooleanArray>())
    }

    fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
        let typed = array.as_boolean_opt().ok_or_else(|| wrong_type::<Self>(array))?;
        typed.iter().enumerate().for_each(|(row, value)| set(row, value));
        Ok(())
    }
}

fn strings<T: Cell>(array: &dyn Array) -> Result<&StringArray, String> {
    array.as_string_opt::<i32>().ok_or_else(|| wrong_type::<T>(array))
}

impl Cell for Option<String> {
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(cells.map(Option::as_deref).collect::<StringArray>())
    }

    fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
        let typed = strings::<Self>(array)?;
        typed.iter().enumerate().for_each(|(row, value)| set(row, value.map(str::to_owned)));
        Ok(())
    }
}

impl Cell for String {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(cells))
    }

    fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
        let typed = strings::<Self>(array)?;
        no_nulls(array)?;
        (0..typed.len()).for_each(|row| set(row, typed.value(row).to_owned()));
        Ok(())
    }
}

impl Cell for Vec<u8> {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Binary
    }

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(BinaryArray::from_iter_values(cells))
    }

    fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
        let typed = array.as_binary_opt::<i32>().ok_or_else(|| wrong_type::<Self>(array))?;
        no_nulls(array)?;
        (0..typed.len()).for_each(|row| set(row, typed.value(row).to_owned()));
        Ok(())
    }
}

/// `live`, or `import:` and the format's name.
const IMPORT: &str = "import:";

impl Cell for Provenance {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(cells.map(|cell| match cell {
            Self::Live => "live".to_owned(),
            Self::Import(format) => format!("{IMPORT}{format}"),
        })))
    }

    fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
        let typed = strings::<Self>(array)?;
        no_nulls(array)?;
        for row in 0..typed.len() {
            let value = typed.value(row);
            let provenance = match value.strip_prefix(IMPORT) {
                Some(format) => Self::Import(format.to_owned()),
                None if value == "live" => Self::Live,
                None => return Err("holds a word other than `live` and `import:FORMAT`".to_owned()),
            };
            set(row, provenance);
        }
        Ok(())
    }
}

/// The names that Parquet gives to the parts of a map.
fn map_names() -> MapFieldNames {
    MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() }
}

impl Cell for BTreeMap<String, String> {
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        let names = map_names();
        let pair = Fields::from(vec![
            Field::new(names.key, DataType::Utf8, false),
            Field::new(names.value, DataType::Utf8, true),
        ]);
        DataType::Map(Arc::new(Field::new(names.entry, DataType::Struct(pair), false)), false)
    }

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let mut builder = MapBuilder::new(Some(map_names()), StringBuilder::new(), StringBuilder::new());
        for cell in cells {
            for (key, value) in cell {
                builder.keys().append_value(key);
                builder.values().append_value(value);
            }
            builder.append(true).expect("a value was appended for each key");
        }
        Arc::new(builder.finish())
    }

    fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
        let typed = array.as_map_opt().ok_or_else(|| wrong_type::<Self>(array))?;
        let keys = strings::<String>(typed.keys())?;
        let values = strings::<String>(typed.values())?;
        let offsets = typed.value_offsets();
        for row in 0..typed.len() {
            let range =
                usize::try_from(offsets[row]).unwrap_or(0)..usize::try_from(offsets[row + 1]).unwrap_or(0);
            let pair = |at: usize| (keys.value(at).to_owned(), values.value(at).to_owned());
            set(row, if typed.is_null(row) { Self::new() } else { range.map(pair).collect() });
        }
        Ok(())
    }
}

/// A closed set of words; stored as a dictionary of its names.
pub(super) trait Word: Copy + Eq + 'static {
    /// Each value with its name, at most 127 of them.
    const WORDS: &'static [(Self, &'static str)];
}

/// The type of a column of words.
pub(super) fn words_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))
}

/// The column of these words.
pub(super) fn write_words<W: Word>(words: impl Iterator<Item = Option<W>>) -> ArrayRef {
    let key = |word| {
        let place = W::WORDS.iter().position(|(known, _)| *known == word);
        place.and_then(|place| i8::try_from(place).ok())
    };
    let keys: PrimitiveArray<Int8Type> = words.map(|word| word.and_then(key)).collect();
    let names = StringArray::from_iter_values(W::WORDS.iter().map(|(_, name)| *name));
    Arc::new(DictionaryArray::new(keys, Arc::new(names)))
}

/// Hands each row's word to `set`.
pub(super) fn read_words<W: Word>(
    array: &dyn Array,
    mut set: impl FnMut(usize, Option<W>),
) -> Result<(), String> {
    let expected = || format!("has type {}, expected a dictionary of words", array.data_type());
    let typed = array.as_dictionary_opt::<Int8Type>().ok_or_else(expected)?;
    let names = typed.values().as_string_opt::<i32>().ok_or_else(expected)?;
    let known = |name: &str| W::WORDS.iter().find(|(_, known)| *known == name).map(|(word, _)| *word);
    let words: Vec<Option<W>> = names.iter().map(|name| name.and_then(known)).collect();
    for (row, key) in typed.keys().iter().enumerate() {
        let word = match key {
            None => None,
            Some(key) => {
                let word = usize::try_from(key).ok().and_then(|key| words.get(key).copied().flatten());
                Some(word.ok_or("holds a word that this version does not know")?)
            }
        };
        set(row, word);
    }
    Ok(())
}

/// Most words of a column: keys are `i8`, and negative ones are none.
const MAX_WORDS: usize = 128;

/// A column of words without nulls.
pub(super) fn words_of<W: Word>(array: &dyn Array) -> Result<Vec<W>, String> {
    no_nulls(array)?;
    let expected = || format!("has type {}, expected a dictionary of words", array.data_type());
    let typed = array.as_dictionary_opt::<Int8Type>().ok_or_else(expected)?;
    let names = typed.values().as_string_opt::<i32>().ok_or_else(expected)?;
    let keys = typed.keys().values();
    let known = |name: &str| W::WORDS.iter().find(|(_, known)| *known == name).map(|(word, _)| *word);
    // A table without gaps makes each row one look-up without a check.
    let mut table = [W::WORDS[0].0; MAX_WORDS];
    let mut usable = 0;
    for (place, name) in table.iter_mut().zip(names.iter()) {
        let Some(word) = name.and_then(known) else { break };
        *place = word;
        usable += 1;
    }
    let (least, most) =
        keys.iter().fold((0, 0), |(least, most): (i8, i8), key| (least.min(*key), most.max(*key)));
    if least < 0 || usize::from(most.unsigned_abs()) >= usable {
        // Rare, or wrong: a word of a later version, or a key without a word. The slow way tells which.
        let mut words = Vec::with_capacity(keys.len());
        read_words::<W>(array, |_, word| words.extend(word))?;
        return Ok(words);
    }
    Ok(keys.iter().map(|key| table[usize::from(key.unsigned_abs()) % MAX_WORDS]).collect())
}

/// Names for a closed set, and its cells.
macro_rules! words {
    ($type:ty { $($variant:ident = $name:literal),* $(,)? }) => {
        impl $crate::parquet::cell::Word for $type {
            const WORDS: &'static [(Self, &'static str)] = &[$((Self::$variant, $name)),*];
        }

        impl $crate::parquet::cell::Cell for $type {
            const NULLABLE: bool = false;

            fn data_type() -> DataType {
                words_type()
            }

            fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
                write_words(cells.copied().map(Some))
            }

            fn read(array: &dyn Array, mut set: impl FnMut(usize, Self)) -> Result<(), String> {
                if array.null_count() > 0 {
                    return Err("holds nulls, every row needs a value".to_owned());
                }
                read_words(array, |row, word| if let Some(word) = word { set(row, word) })
            }
        }
    };
}
pub(super) use words;
