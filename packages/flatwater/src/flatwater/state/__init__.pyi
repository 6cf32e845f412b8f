from flatwater.state.random import generator as generator
from flatwater.state.tree import nbytes as nbytes
from flatwater.state.tree import state as state
