"""`_native.pyi` matches the native module: each name, and the arguments of each function and method."""

import ast
import inspect
from pathlib import Path

import bolide
import pytest
from bolide import _native

STUB = Path(bolide.__file__).with_name("_native.pyi")
#: Types that exist in the stub only: they describe plain dictionaries.
DESCRIPTIONS = {"WorkerRow"}
#: Attributes of any object, and those described by its constructor.
USUAL = {"__doc__", "__module__", "__new__", "__init__"}


def arguments_of(function):
    """Returns the names of a function's arguments in the stub, without `self`."""
    given = function.args
    further = [argument for argument in (given.vararg, given.kwarg) if argument is not None]
    return [argument.arg for argument in given.posonlyargs + given.args + further if argument.arg != "self"]


def declared(body):
    """Returns name -> node, of a module or a class."""
    return {
        node.target.id if isinstance(node, ast.AnnAssign) else node.name: node
        for node in body
        if isinstance(node, (ast.AnnAssign, ast.FunctionDef, ast.ClassDef))
    }


@pytest.fixture(scope="module")
def stub():
    return declared(ast.parse(STUB.read_text()).body)


def test_the_stub_has_the_names_of_the_module(stub):
    assert set(stub) - DESCRIPTIONS == set(_native.__all__)


def test_functions_have_the_arguments_of_the_module(stub):
    functions = {name: node for name, node in stub.items() if isinstance(node, ast.FunctionDef)}
    assert len(functions) > 10
    for name, node in functions.items():
        assert arguments_of(node) == list(inspect.signature(getattr(_native, name)).parameters), name


def test_constants_are_of_their_types(stub):
    for name, node in stub.items():
        if isinstance(node, ast.AnnAssign):
            kind = {"int": int, "str": str, "list[int]": list}[ast.unparse(node.annotation)]
            assert isinstance(getattr(_native, name), kind), name


def test_classes_have_the_methods_of_the_module(stub):
    classes = {name: node for name, node in stub.items() if isinstance(node, ast.ClassDef) and name not in DESCRIPTIONS}
    assert classes
    for name, node in classes.items():
        native, members = getattr(_native, name), declared(node.body)
        if issubclass(native, Exception):
            # It has what Python gives each of them.
            assert [ast.unparse(base) for base in node.bases] == [base.__name__ for base in native.__bases__], name
            continue
        assert set(members) - USUAL == set(vars(native)) - USUAL, name
        if "__init__" not in members:
            with pytest.raises(TypeError, match=r"cannot create|No constructor"):
                native()
        for member, method in members.items():
            if member == "__init__":
                found = inspect.signature(native).parameters
            elif member == "__call__" or method.decorator_list:
                # A slot or a property: the interpreter does not expose its arguments.
                found = {}
            else:
                found = [argument for argument in inspect.signature(getattr(native, member)).parameters if argument != "self"]
            assert arguments_of(method) == list(found), f"{name}.{member}"
