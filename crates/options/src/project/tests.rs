//! Tests with the usual layouts of projects.

use bolide_configuration::testing::Directory;

use super::{Kind, find_in_directory, find_in_file, find_in_package};

/// A file of a project: its path and its text.
type File = (&'static str, &'static str);

/// A directory with these files.
fn project(name: &str, files: &[File]) -> Directory {
    let directory = Directory::new(name);
    for (path, text) in files {
        std::fs::create_dir_all(directory.path().join(path).parent().expect("it has a directory")).expect("it can be made");
        directory.write(path, text);
    }
    directory
}

const FACTORY: &str = "from flask import Flask\n\ndef create_app(config=None):\n    return Flask(__name__)\n";
const MANAGE: File = ("manage.py", "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.config.settings.dev')\n");

#[test]
fn test_the_likeliest_application_of_a_directory_is_found() {
    let cases: &[(&[File], &str, &str, &str)] = &[
        (&[("app.py", "app = Flask(__name__)\n")], "app:app", "", "a Flask application in app.py"),
        (&[("hello.py", "site = Flask(__name__)\n")], "hello:site", "", "a Flask application in hello.py"),
        (&[("shop/__init__.py", FACTORY)], "shop:create_app()", "", "a Flask application in shop/__init__.py"),
        (&[("src/shop/__init__.py", FACTORY)], "shop:create_app()", "src", "a Flask application in src/shop/__init__.py"),
        (
            &[("shop/__init__.py", ""), ("shop/main.py", "api = FastAPI()\n")],
            "shop.main:api",
            "",
            "a FastAPI application in shop/main.py",
        ),
        (&[("app/main.py", "app = FastAPI()\n")], "app.main:app", "", "a FastAPI application in app/main.py"),
        (
            &[("wsgi.py", "from shop import create_app\napp = create_app()\n"), ("shop/__init__.py", FACTORY)],
            "wsgi:app",
            "",
            "a Flask application in wsgi.py",
        ),
        (
            &[("wsgi.py", "def application(environ, start):\n    pass\n")],
            "wsgi:application",
            "",
            "the WSGI application in wsgi.py",
        ),
        (&[("asgi.py", "async def app(scope, receive, send):\n    pass\n")], "asgi:app", "", "the ASGI application in asgi.py"),
        (&[("app.py", "app = made()\n")], "app:app", "", "the application in app.py"),
        (
            &[
                ("pyproject.toml", "[tool.fastapi]\nentrypoint = 'shop.web:site'\n"),
                ("shop/web.py", ""),
                ("app.py", "app = Flask(x)\n"),
            ],
            "shop.web:site",
            "",
            "a FastAPI application in shop/web.py",
        ),
        (
            &[(".flaskenv", "FLASK_APP=shop.py\n"), ("shop.py", FACTORY)],
            "shop:create_app()",
            "",
            "a Flask application in shop.py",
        ),
        (
            &[MANAGE, ("shop/config/wsgi.py", ""), ("shop/config/settings/dev.py", ""), ("shop/__init__.py", "app = Celery()\n")],
            "shop.config.wsgi:application",
            "",
            "the Django project `shop.config`",
        ),
    ];
    for (index, (files, name, root, description)) in cases.iter().enumerate() {
        let directory = project(&format!("project-{index}"), files);
        let found = find_in_directory(directory.path());
        let first = found.first().unwrap_or_else(|| panic!("nothing in {files:?}"));
        let seen = (first.name().unwrap_or_default(), first.root.to_string_lossy(), first.description());
        assert_eq!((seen.0.as_str(), &*seen.1, seen.2.as_str()), (*name, *root, *description), "{files:?}");
    }
}

#[test]
fn test_a_factory_with_arguments_or_without_a_plain_name_has_no_name() {
    for (index, text) in [
        "def create_app(config):\n    return Flask(__name__)\n",
        "def create_app(\n    config: dict[str, int],\n    debug=True,\n):\n    return FastAPI()\n",
        "sites = [Flask('a'), Flask('b')]\n",
    ]
    .iter()
    .enumerate()
    {
        let directory = Directory::new(&format!("project-unnamed-{index}"));
        directory.write("app.py", text);
        let found = find_in_directory(directory.path());
        assert_eq!(found.iter().map(|found| found.name()).collect::<Vec<_>>(), [None], "{text}");
    }
}

#[test]
fn test_other_texts_are_not_taken_for_an_application() {
    let directory = project(
        "project-none",
        &[
            ("setup.py", "from setuptools import setup\n"),
            ("notes.py", "# Flask(\nclass MyFlask(dict):\n    pass\nthing = MyFlask()\n"),
            ("tests/__init__.py", "app = Flask(__name__)\n"),
            ("app.txt", "app = Flask(__name__)\n"),
        ],
    );
    assert_eq!(find_in_directory(directory.path()), []);
    assert_eq!(find_in_directory(&directory.path().join("missing")), []);
}

#[test]
fn test_several_applications_are_all_reported() {
    let directory = project("project-several", &[("app.py", "app = Flask(__name__)\n"), ("main.py", "api = FastAPI()\n")]);
    let names: Vec<Option<String>> = find_in_directory(directory.path()).iter().map(super::Finding::name).collect();
    assert_eq!(names, [Some("app:app".to_owned()), Some("main:api".to_owned())]);
}

#[test]
fn test_a_file_in_a_package_is_a_module_of_it() {
    let directory = project(
        "project-file",
        &[("src/shop/__init__.py", ""), ("src/shop/web/__init__.py", ""), ("src/shop/web/main.py", "app = FastAPI()\n")],
    );
    let found = find_in_file(&directory.path().join("src/shop/web/main.py")).expect("it is found");
    assert_eq!((found.module.as_str(), found.kind), ("shop.web.main", Kind::Asgi));
    assert_eq!(found.root, directory.path().join("src"));
    let package = find_in_package(&directory.path().join("src/shop/web"));
    assert_eq!(package.iter().map(|found| found.module.as_str()).collect::<Vec<_>>(), ["shop.web.main"]);
    assert_eq!(find_in_file(&directory.path().join("src/no-module.py")), None);
}
