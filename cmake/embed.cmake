# Writes the bytes of INPUT to OUTPUT as a list of C integers: cmake -D INPUT=... -D OUTPUT=... -P embed.cmake
file(READ "${INPUT}" bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}" "${bytes}\n")
