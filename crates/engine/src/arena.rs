//! Dense storage under small typed ids.

use std::marker::PhantomData;

/// An index that only fits the collection it was made for.
pub(crate) trait Id: Copy + Eq + Ord {
    /// The id of slot `index`.
    fn from_index(index: usize) -> Self;
    /// The slot that this id names.
    fn index(self) -> usize;
}

/// Defines an [`Id`] of 32 bits.
macro_rules! define_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(u32);

        impl $crate::arena::Id for $name {
            fn from_index(index: usize) -> Self {
                // Four thousand million of anything do not fit in memory, so the last id is never reached.
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
pub(crate) use define_id;

/// Values that come and go, each under an id that stays the same while it lives and may be used again after.
#[derive(Debug)]
pub(crate) struct Arena<I, T> {
    slots: Vec<Option<T>>,
    free: Vec<I>,
}

impl<I, T> Default for Arena<I, T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<I: Id, T> Arena<I, T> {
    pub(crate) fn insert(&mut self, value: T) -> I {
        if let Some(id) = self.free.pop() {
            self.slots[id.index()] = Some(value);
            id
        } else {
            self.slots.push(Some(value));
            I::from_index(self.slots.len() - 1)
        }
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let value = self.slots.get_mut(id.index())?.take()?;
        self.free.push(id);
        Some(value)
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.slots.get(id.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.slots.get_mut(id.index())?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, value)| Some((I::from_index(index), value.as_ref()?)))
    }
}

/// A column beside an [`Arena`] or an interner: one value per id, made by default when first touched.
#[derive(Debug)]
pub(crate) struct Column<I, T> {
    values: Vec<T>,
    ids: PhantomData<I>,
}

impl<I, T> Default for Column<I, T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            ids: PhantomData,
        }
    }
}

impl<I: Id, T: Default> Column<I, T> {
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.values.get(id.index())
    }

    pub(crate) fn entry(&mut self, id: I) -> &mut T {
        if self.values.len() <= id.index() {
            self.values.resize_with(id.index() + 1, T::default);
        }
        &mut self.values[id.index()]
    }
}

/// A set of ids that is added to often and read as a whole now and then: adding costs no search.
#[derive(Debug)]
pub(crate) struct Marks<I> {
    marked: Vec<bool>,
    /// Each marked id once, as they came.
    listed: Vec<I>,
}

impl<I> Default for Marks<I> {
    fn default() -> Self {
        Self {
            marked: Vec::new(),
            listed: Vec::new(),
        }
    }
}

impl<I: Id> Marks<I> {
    pub(crate) fn insert(&mut self, id: I) {
        if self.marked.len() <= id.index() {
            self.marked.resize(id.index() + 1, false);
        }
        if !std::mem::replace(&mut self.marked[id.index()], true) {
            self.listed.push(id);
        }
    }

    /// Costs as much as there are marks.
    pub(crate) fn remove(&mut self, id: I) {
        if let Some(marked) = self.marked.get_mut(id.index())
            && std::mem::take(marked)
        {
            self.listed.retain(|listed| *listed != id);
        }
    }

    /// In no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = I> {
        self.listed.iter().copied()
    }

    pub(crate) fn extend(&mut self, ids: impl IntoIterator<Item = I>) {
        for id in ids {
            self.insert(id);
        }
    }

    /// Takes all marks of another set.
    pub(crate) fn append(&mut self, other: &mut Self) {
        for id in other.listed.drain(..) {
            other.marked[id.index()] = false;
            self.insert(id);
        }
    }

    pub(crate) fn clear(&mut self) {
        for id in self.listed.drain(..) {
            self.marked[id.index()] = false;
        }
    }

    /// Takes all marks away; the ids in order.
    pub(crate) fn take(&mut self) -> Vec<I> {
        let mut ids = self.listed.clone();
        self.clear();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, Id, Marks};

    define_id!(TestId);

    #[test]
    fn a_freed_id_names_nothing_until_it_is_used_again() {
        let mut arena: Arena<TestId, &str> = Arena::default();
        let (a, b) = (arena.insert("a"), arena.insert("b"));
        assert_eq!(arena.remove(a), Some("a"));
        assert_eq!(arena.remove(a), None);
        assert_eq!(arena.get(a), None);
        assert_eq!(arena.insert("c"), a);
        assert_eq!(arena.iter().collect::<Vec<_>>(), [(a, &"c"), (b, &"b")]);
    }

    #[test]
    fn a_mark_is_there_once_until_it_is_taken_or_removed() {
        let [one, two, three] = [1, 2, 3].map(TestId::from_index);
        let (mut marks, mut more) = (Marks::default(), Marks::default());
        marks.extend([three, one, three, two]);
        marks.remove(two);
        marks.remove(two);
        more.extend([two, one]);
        marks.append(&mut more);
        assert_eq!(more.iter().count(), 0);
        assert_eq!(marks.take(), [one, two, three]);
        marks.insert(two);
        assert_eq!(marks.iter().collect::<Vec<_>>(), [two]);
    }
}
