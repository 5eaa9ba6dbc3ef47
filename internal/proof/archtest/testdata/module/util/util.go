package util // want `package name util says nothing` `package util has no row in the import table` `util is on no floor`
