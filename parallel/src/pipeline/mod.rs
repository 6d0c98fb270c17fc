//! Pipeline parallel: a model cut into stages, and the order in which micro-batches pass through them.
