// The headers that tests share are precompiled once, for this: see octalane_precompiled() in CMakeLists.txt.
int main() {}
