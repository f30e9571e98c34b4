// A test program: TEST(Name) { EXPECT(...); } and RUN_TESTS() at the end of the file.
#pragma once

#include <cstdio>
#include <vector>

namespace mooncake::test {

struct Case {
  const char* name;
  void (*run)();
};

inline std::vector<Case>& Cases() {
  static std::vector<Case> cases;
  return cases;
}

inline int failures = 0;

struct Registration {
  Registration(const char* name, void (*run)()) { Cases().push_back({name, run}); }
};

inline int RunAll() {
  for (const Case& one : Cases()) {
    const int before = failures;
    one.run();
    std::printf("%s %s\n", failures == before ? "ok  " : "FAIL", one.name);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace mooncake::test

#define TEST(name)                                                              \
  static void name();                                                           \
  static const ::mooncake::test::Registration registration_##name(#name, name); \
  static void name()

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      ++::mooncake::test::failures;                                        \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                      \
  } while (0)

#define RUN_TESTS() \
  int main() { return ::mooncake::test::RunAll(); }
