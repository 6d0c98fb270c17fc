//! What nccl-tests calls the element types and operators, in its order.

use paceline_comm::DataType;

/// An element type with its name and width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TypeName {
    /// The name on the command line and in the table.
    pub name: &'static str,
    /// The library's type.
    pub data_type: DataType,
    /// Bytes of one element.
    pub bytes: usize,
}

/// The element types in nccl-tests' order.
pub const TYPES: [TypeName; 12] = [
    TypeName { name: "int8", data_type: DataType::I8, bytes: 1 },
    TypeName { name: "uint8", data_type: DataType::U8, bytes: 1 },
    TypeName { name: "int32", data_type: DataType::I32, bytes: 4 },
    TypeName { name: "uint32", data_type: DataType::U32, bytes: 4 },
    TypeName { name: "int64", data_type: DataType::I64, bytes: 8 },
    TypeName { name: "uint64", data_type: DataType::U64, bytes: 8 },
    TypeName { name: "half", data_type: DataType::F16, bytes: 2 },
    TypeName { name: "float", data_type: DataType::F32, bytes: 4 },
    TypeName { name: "double", data_type: DataType::F64, bytes: 8 },
    TypeName { name: "bfloat16", data_type: DataType::Bf16, bytes: 2 },
    TypeName { name: "f8e4m3", data_type: DataType::F8E4M3, bytes: 1 },
    TypeName { name: "f8e5m2", data_type: DataType::F8E5M2, bytes: 1 },
];

/// An operator as the command line knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operator {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The sum divided by the number of ranks.
    Avg,
    /// The sum of each rank's elements times a factor of that rank's own.
    MulSum,
}

/// The operators with their names, in nccl-tests' order.
pub const OPERATORS: [(&str, Operator); 6] = [
    ("sum", Operator::Sum),
    ("prod", Operator::Prod),
    ("max", Operator::Max),
    ("min", Operator::Min),
    ("avg", Operator::Avg),
    ("mulsum", Operator::MulSum),
];

impl Operator {
    /// The name on the command line and in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        OPERATORS.iter().find(|(_, operator)| *operator == self).expect("every operator has a name").0
    }
}

/// The type of that name.
#[must_use]
pub fn type_named(name: &str) -> Option<TypeName> {
    TYPES.into_iter().find(|row| row.name == name)
}

/// The operator of that name.
#[must_use]
pub fn operator_named(name: &str) -> Option<Operator> {
    OPERATORS.iter().find(|row| row.0 == name).map(|row| row.1)
}
