//! What the tests of paceline as a whole share.
