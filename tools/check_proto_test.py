# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Feeds tools/check-proto a small schema: additions, which pass, and each kind of break, which does not."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent / "check-proto"
SCHEMA = """syntax = "proto3";
package tetrad.v1;
enum Colour {
  COLOUR_UNSPECIFIED = 0;
  COLOUR_RED = 1;
  COLOUR_BLUE = 2;
  reserved 7;
  reserved "COLOUR_OLD";
}
message Paint {
  reserved 8 to 9;
  reserved "old";
  string name = 1;
  int64 litres = 2;
  repeated int32 coats = 3;
  oneof base {
    string oil = 4;
    string water = 5;
  }
  optional bool glossy = 6;
  Can can = 7;
  Colour colour = 10;
  message Can {
    int32 size = 1;
  }
}
message Nothing {}
message Idle {}
service Shop {
  rpc Mix(Paint) returns (Paint);
  rpc Watch(Nothing) returns (stream Paint);
}
"""

ADDITIONS = [
    ("a field", "Can can = 7;", "Can can = 7;\n  string maker = 11;"),
    ("a field in a oneof", "string water = 5;", "string water = 5;\n    string lime = 11;"),
    ("presence", "int64 litres = 2;", "optional int64 litres = 2;"),
    ("a value", "COLOUR_BLUE = 2;", "COLOUR_BLUE = 2;\n  COLOUR_GREEN = 3;"),
    ("a message", "message Nothing {}", "message Nothing {}\nmessage More { int32 a = 1; }"),
    ("an enumeration", "message Nothing {}", "message Nothing {}\nenum E { E_UNSPECIFIED = 0; }"),
    ("a method", "rpc Mix", "rpc Stir(Paint) returns (Paint);\n  rpc Mix"),
    ("a service", "service Shop", "service Other { rpc Mix(Paint) returns (Paint); }\nservice Shop"),
    ("a field that went, reserved", "  Can can = 7;", "  reserved 7;\n  reserved \"can\";"),
    ("a value that went, reserved", "  COLOUR_BLUE = 2;", "  reserved 2;\n  reserved \"COLOUR_BLUE\";"),
    ("ranges that were joined", "reserved 8 to 9;", "reserved 8 to 9, 11 to 20;"),
    ("order and comments", "  int64 litres = 2;\n  repeated int32 coats = 3;",
     "  repeated int32 coats = 3;  // \"3\" {\n  int64 litres = 2;"),
]

# (name of the case, what is replaced, by what, what must be reported)
BREAKS = [
    ("type", "int64 litres", "int32 litres", "tetrad.v1.Paint.litres: type was TYPE_INT64, is TYPE_INT32"),
    ("type of a message", "Can can", "Nothing can", "tetrad.v1.Paint.can: type_name was .tetrad.v1.Paint.Can, is .tetrad.v1.Nothing"),
    ("label", "int64 litres", "repeated int64 litres", "tetrad.v1.Paint.litres: label was LABEL_OPTIONAL, is LABEL_REPEATED"),
    ("packed", "coats = 3", "coats = 3 [packed = false]", "tetrad.v1.Paint.coats: packed was unsaid, is false"),
    ("number", "litres = 2", "litres = 12", "tetrad.v1.Paint.litres: was number 2, is 12"),
    ("name", "string name", "string title", "tetrad.v1.Paint.name: number 1 is now that of title"),
    ("name in JSON", "litres = 2", "litres = 2 [json_name = \"l\"]", "tetrad.v1.Paint.litres: json_name was litres, is l"),
    ("number that is not reserved", "  int64 litres = 2;", "  reserved \"litres\";",
     "tetrad.v1.Paint.litres: removed, and the number 2 of the field is not reserved"),
    ("name that is not reserved", "  int64 litres = 2;", "  reserved 2;",
     "tetrad.v1.Paint.litres: removed, and the name of the field is not reserved"),
    ("number that was reserved", "reserved 8 to 9;", "reserved 8;",
     "tetrad.v1.Paint: the reserved numbers 8 to 9 are no longer reserved"),
    ("name that was reserved", "reserved \"old\";", "", "tetrad.v1.Paint: the reserved name old is no longer reserved"),
    ("out of a oneof", "    string oil = 4;\n    string water = 5;\n  }", "    string oil = 4;\n  }\n  string water = 5;",
     "tetrad.v1.Paint.water: oneof was base, is none"),
    ("presence", "optional bool", "bool", "tetrad.v1.Paint.glossy: was optional"),
    ("field of a message in a message", "int32 size", "string size", "tetrad.v1.Paint.Can.size: type was TYPE_INT32, is TYPE_STRING"),
    ("number of a value", "COLOUR_RED = 1", "COLOUR_RED = 11", "tetrad.v1.Colour.COLOUR_RED: was number 1, is 11"),
    ("name of a value", "COLOUR_RED", "COLOUR_ROSE", "tetrad.v1.Colour.COLOUR_RED: number 1 is now that of COLOUR_ROSE"),
    ("value that is not reserved", "  COLOUR_BLUE = 2;", "  reserved \"COLOUR_BLUE\";",
     "tetrad.v1.Colour.COLOUR_BLUE: removed, and the number 2 of the value is not reserved"),
    ("value that was reserved", "reserved 7;", "", "tetrad.v1.Colour: the reserved numbers 7 to 7 are no longer reserved"),
    ("message", "message Idle {}", "message Busy {}", "tetrad.v1.Idle: the message was removed"),
    ("method", "  rpc Mix(Paint) returns (Paint);\n", "", "tetrad.v1.Shop.Mix: the method was removed"),
    ("request", "Mix(Paint)", "Mix(Nothing)", "tetrad.v1.Shop.Mix: input_type was .tetrad.v1.Paint, is .tetrad.v1.Nothing"),
    ("response", "Mix(Paint) returns (Paint)", "Mix(Paint) returns (Nothing)", "tetrad.v1.Shop.Mix: output_type was .tetrad.v1.Paint, is .tetrad.v1.Nothing"),
    ("stream", "returns (stream Paint)", "returns (Paint)", "tetrad.v1.Shop.Watch: server_streaming was true, is false"),
    ("stream of requests", "Mix(Paint)", "Mix(stream Paint)", "tetrad.v1.Shop.Mix: client_streaming was false, is true"),
    ("service", "service Shop", "service Store", "tetrad.v1.Shop: the service was removed"),
    ("package", "package tetrad.v1;", "package tetrad.v2;", "tetrad.v1.Paint: the message was removed"),
]


class CheckProtoTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="a schema "))
        self.addCleanup(shutil.rmtree, self.root)
        self.schema = self.root / "proto/tetrad/v1/shop.proto"
        self.schema.parent.mkdir(parents=True)
        self.schema.write_text(SCHEMA)
        self.assertEqual(self.check("--release"), (0, ""))

    def check(self, *arguments):
        result = subprocess.run([sys.executable, str(TOOL), *arguments, str(self.root)], check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout.decode()

    def change(self, before, after):
        self.assertEqual(SCHEMA.count(before), 1, before)
        self.schema.write_text(SCHEMA.replace(before, after))

    def test_the_release_itself_passes(self):
        self.assertEqual(self.check(), (0, "proto: 2 methods of the last release, 0 breaks\n"))

    def test_additions_pass(self):
        for name, before, after in ADDITIONS:
            with self.subTest(name):
                self.change(before, after)
                self.assertEqual(self.check(), (0, "proto: 2 methods of the last release, 0 breaks\n"))

    def test_each_break_is_reported(self):
        for name, before, after, expected in BREAKS:
            with self.subTest(name):
                self.change(before, after)
                status, said = self.check()
                self.assertEqual(status, 1, said)
                self.assertIn(expected + "\n", said)

    def test_a_change_after_a_release_is_compared_to_that_release(self):
        self.change("int64 litres", "int32 litres")
        self.assertEqual(self.check("--release")[0], 0)
        self.assertEqual(self.check()[0], 0)

    def test_moving_between_files_is_no_break(self):
        self.schema.write_text(SCHEMA.replace("message Nothing {}\n", "import \"tetrad/v1/nothing.proto\";\n"))
        self.schema.with_name("nothing.proto").write_text(
            'syntax = "proto3";\npackage tetrad.v1;\nmessage Nothing {}\n')
        self.assertEqual(self.check()[0], 0, self.check()[1])

    def test_a_schema_that_is_none_is_an_error(self):
        self.schema.write_text("message {")
        self.assertEqual(self.check()[0], 1)


if __name__ == "__main__":
    unittest.main()
